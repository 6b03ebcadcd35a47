//! Nodes come from the pool: a program that arms and cancels again and again allocates no memory,
//! whichever thread frees the nodes.
//!
//! This program has one test, because it counts the allocations of the process.
#![cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use tourbillon_shards::{Cancel, Owner, Shard, Timer};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the contract of this function is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the contract of this function is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

struct Nobody;

impl Owner for Nobody {
    fn wake(&self) {}
    fn is_current(&self) -> bool {
        true
    }
}

#[test]
fn timers_that_are_freed_are_reused_without_allocation() {
    let home = Arc::new(Shard::new(Nobody));
    let round = || {
        let captured = (1_000_u64, 1_000_u64);
        let f = move || _ = std::hint::black_box(captured);
        let timers: Vec<_> = (0..1_000).map(|i| Timer::once(&home, i, i, f)).collect();
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
    // Each round allocates its vector of handles and its thread. The nodes would take 64,000 bytes
    // more.
    let each = (ALLOCATED.load(Relaxed) - before) / 100;
    assert!(each < 40_000, "{each} bytes for each round");
    home.close();
}
