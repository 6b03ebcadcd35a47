//! Nodes come from a pool: who arms and cancels again and again asks the allocator for nothing, whichever
//! thread it is that lets go of them.
#![cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use tourbillon_shards::{Cancel, Owner, Shard, Timer};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are passed on as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: as our own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as our own.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Both tests count what the process does.
static ALONE: Mutex<()> = Mutex::new(());

struct Nobody;

impl Owner for Nobody {
    fn wake(&self) {}
    fn is_current(&self) -> bool {
        true
    }
}

fn arm(home: &Arc<Shard<Nobody>>, count: u64) -> Vec<Timer<Nobody>> {
    let captured = (count, count);
    let f = move || _ = std::hint::black_box(captured);
    (0..count).map(|i| Timer::once(home, i, i, f)).collect()
}

#[test]
fn timers_that_come_and_go_are_not_allocated_anew() {
    let _alone = ALONE.lock();
    let home = Arc::new(Shard::new(Nobody));
    let round = || {
        let timers = arm(&home, 1_000);
        let cancel = move || {
            let cancelled = timers.iter().map(Timer::cancel);
            assert!(cancelled.into_iter().all(|it| it == Cancel::Cancelled));
        };
        thread::spawn(cancel).join().unwrap();
    };
    round();
    let before = ALLOCATED.load(Relaxed);
    for _ in 0..100 {
        round();
    }
    // The handles' vector and the thread of each round are in it: the nodes would be 64,000 more.
    let each = (ALLOCATED.load(Relaxed) - before) / 100;
    assert!(each < 40_000, "{each} bytes for each round");
    home.close();
}

static READY: AtomicUsize = AtomicUsize::new(0);

#[test]
fn where_there_are_very_many_the_owner_is_asked_for_memory() {
    let _alone = ALONE.lock();
    tourbillon_shards::prepare_memory_by(|at, bytes| {
        assert!(!at.is_null());
        READY.fetch_add(bytes, Relaxed);
    });
    let home = Arc::new(Shard::new(Nobody));
    let few = arm(&home, 10_000);
    assert_eq!(READY.load(Relaxed), 0);
    let many = arm(&home, 200_000);
    let (ready, most) = (READY.load(Relaxed), 200_000 * 64);
    assert!(ready > most / 2 && ready < most + 1024 * 1024, "{ready}");
    drop((few, many));
    drop(home.close());
}
