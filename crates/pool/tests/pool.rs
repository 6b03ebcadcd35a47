//! Nodes come from a pool. A program that arms and cancels again and again allocates no memory,
//! whichever thread frees the nodes.
//!
//! This program stands alone: it counts the allocations of its processes.
#![cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    any::type_name,
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use tourbillon_shards::{
    Cancel, Owner, Ran, Returned, Shard, Timer, all_memory_is_spare, has_spare_memory,
    note_spare_memory, return_spare_memory, wake_for_spare_memory_by,
};

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

/// Runs `test` in a process of its own, which is this program with a filter: the test counts the
/// allocations of the whole process, or needs a pool that no other test has used.
/// `TOURBILLON_TEST_RUNNER` names a program that runs this program, for example an emulator.
///
/// `test` is a closure that stands in the test itself: its type names the test.
fn alone<F: FnOnce()>(test: F) {
    const CHILD: &str = "TOURBILLON_POOL_TEST";
    if env::var_os(CHILD).is_some() {
        return test();
    }
    let name = type_name::<F>()
        .split("::")
        .nth(1)
        .expect("a closure in a test");
    let program = env::current_exe().unwrap().into_os_string();
    let runner = env::var_os("TOURBILLON_TEST_RUNNER").unwrap_or_else(|| "env".into());
    let child = Command::new(runner)
        .arg(program)
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, name)
        .output()
        .unwrap();
    let [out, err] = [child.stdout, child.stderr].map(|out| String::from_utf8(out).unwrap());
    // A name that does not exist would run nothing, and succeed.
    let passed = child.status.success() && out.contains("1 passed");
    assert!(passed, "{name} failed\n{out}\n{err}");
}

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

/// Arms `count` timers, which take 64 bytes each, and frees them.
fn arm_and_free(home: &Arc<Shard<Nobody>>, count: u64) {
    let timers = arm(home, count);
    timers.iter().for_each(|it| _ = it.cancel());
}

/// Number of bytes of free memory that were returned.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// Takes memory as the system does: its content may be zero afterwards.
fn give(at: *mut u8, bytes: usize) {
    // SAFETY: by the contract, no thread needs the content, so zeros are allowed.
    unsafe { at.write_bytes(0, bytes) };
    GIVEN.fetch_add(bytes, Relaxed);
}

/// Returns all spare memory to the system by `give`, and tells how many bytes it was.
fn give_all_by(give: fn(*mut u8, usize)) -> usize {
    let before = GIVEN.load(Relaxed);
    while return_spare_memory(give) == Returned::Some {}
    GIVEN.load(Relaxed) - before
}

#[test]
fn timers_that_are_freed_are_reused_without_allocation() {
    alone(|| {
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
        // Each round allocates its vector of handles and its thread. The nodes would take 64,000
        // bytes more.
        let each = (ALLOCATED.load(Relaxed) - before) / 100;
        assert!(each < 40_000, "{each} bytes for each round");
        home.close();
    });
}

static READY: AtomicUsize = AtomicUsize::new(0);

#[test]
fn very_many_timers_get_memory_from_their_owner() {
    alone(|| {
        tourbillon_shards::prepare_memory_by(|at, bytes| {
            assert!(!at.is_null());
            assert!(bytes > 0, "there is nothing to prepare");
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
    });
}

/// Memory that is unused for a period goes back to the system, once. Memory in use keeps its
/// content.
#[test]
fn memory_that_is_free_for_a_period_is_returned() {
    alone(|| {
        let give_all = || {
            give_all_by(|at, bytes| {
                // SAFETY: by the contract, no thread needs the content.
                assert_eq!(0, unsafe {
                    libc::madvise(at.cast(), bytes, libc::MADV_DONTNEED)
                });
                GIVEN.fetch_add(bytes, Relaxed);
            })
        };
        const COUNT: usize = 100_000;
        let home = Arc::new(Shard::new(Nobody));
        let sum = Arc::new(AtomicUsize::new(0));
        let mut random = 7_u64;
        for round in 0..3 {
            let mut timers: Vec<_> = (0..COUNT)
                .map(|i| {
                    let (sum, i) = (sum.clone(), i + round);
                    // Nodes of two sizes.
                    if i % 2 == 0 {
                        Timer::once(&home, 1, 0, move || _ = sum.fetch_add(i, Relaxed))
                    } else {
                        let more = [i; 3];
                        let f = move || _ = sum.fetch_add(more.iter().sum::<usize>() / 3, Relaxed);
                        Timer::once(&home, 1, 0, f)
                    }
                })
                .collect();
            assert_eq!(give_all(), 0, "it was not free for a period");
            // Free in no particular order. A few nodes stay, and their pages with them.
            for at in (1..timers.len()).rev() {
                random = random * 48_271 % 0x7fff_ffff;
                timers.swap(at, random as usize % (at + 1));
            }
            let stay = timers.split_off(COUNT - 100);
            timers.iter().for_each(|it| _ = it.cancel());
            drop(timers);
            assert!(has_spare_memory());
            note_spare_memory();
            // Earlier tests may have left a few free pages, which this period did not need.
            let early = give_all();
            assert!(
                early < 64 * 1024,
                "{early} bytes were wanted in this period"
            );
            assert!(has_spare_memory(), "there is to be another look");
            note_spare_memory();
            let (given, freed) = (give_all(), COUNT * (64 + 80) / 2);
            assert!(
                given > freed * 8 / 10 && given < freed * 12 / 10,
                "{given} of {freed}"
            );
            assert!(!has_spare_memory());
            note_spare_memory();
            assert_eq!(give_all(), 0, "the system has it");
            let mut due = Vec::new();
            home.expire(1, usize::MAX, &mut due);
            assert_eq!(due.len(), stay.len());
            due.into_iter().for_each(|it| _ = it.run(|| 1));
        }
        assert!(sum.load(Relaxed) > 0);
        drop(home.close());
    });
}

/// A burst that is smaller than an earlier one fits into memory that the system already has. The
/// system's share of the earlier burst must not hide what is free after the later one.
#[test]
fn memory_of_a_small_burst_after_a_large_one_is_returned() {
    alone(|| {
        let home = Arc::new(Shard::new(Nobody));
        for count in [200_000, 80_000, 20_000, 80_000] {
            let mut given = 0;
            let captured = [count; 8];
            let f = move || _ = std::hint::black_box(captured);
            let timers: Vec<_> = (0..count).map(|i| Timer::once(&home, i, i, f)).collect();
            timers.iter().for_each(|it| _ = it.cancel());
            drop(timers);
            // After the first period the freed memory may still be wanted. The second period
            // returns it.
            for _ in 0..2 {
                assert!(has_spare_memory(), "{count} timers are worth a look");
                note_spare_memory();
                given += give_all_by(give);
            }
            assert!(!has_spare_memory());
            let freed = count as usize * 112;
            assert!(given > freed / 10 * 9, "{given} of {freed}");
            assert!(given < freed / 10 * 11, "{given} of {freed}");
        }
        drop(home.close());
    });
}

/// Freed timers wake a thread once in each period, and only if they take much memory.
#[test]
fn much_free_memory_wakes_a_thread_once_in_a_period() {
    alone(|| {
        static WOKEN: AtomicUsize = AtomicUsize::new(0);
        wake_for_spare_memory_by(|| _ = WOKEN.fetch_add(1, Relaxed));
        wake_for_spare_memory_by(|| panic!("the first one stays"));
        let home = Arc::new(Shard::new(Nobody));
        arm_and_free(&home, 3_000);
        assert_eq!(WOKEN.load(Relaxed), 0, "too little memory");
        assert!(!has_spare_memory());
        for period in 1..4 {
            for _ in 0..3 {
                arm_and_free(&home, 50_000);
                assert_eq!(WOKEN.load(Relaxed), period);
                assert!(has_spare_memory());
            }
            all_memory_is_spare();
            assert!(!has_spare_memory());
        }
        drop(home.close());
    });
}

/// A few free pages are not worth the calls of the system, unless all memory is to be returned.
#[test]
fn little_free_memory_is_kept_for_later_timers() {
    alone(|| {
        let home = Arc::new(Shard::new(Nobody));
        arm_and_free(&home, 3_000);
        for _ in 0..3 {
            note_spare_memory();
            assert_eq!(return_spare_memory(give), Returned::All);
        }
        assert_eq!(GIVEN.load(Relaxed), 0);
        all_memory_is_spare();
        let (given, freed) = (give_all_by(give), 3_000 * 64);
        assert!(given > freed / 2, "{given} of {freed}");
        drop(home.close());
    });
}

/// The blocks that a thread keeps for itself, and those that the depot keeps in the order in which
/// they were freed, are free memory like all others.
#[test]
fn all_free_memory_counts_wherever_it_is() {
    alone(|| {
        let home = Arc::new(Shard::new(Nobody));
        // The thread keeps all of these. They take four pages, and the first of these has the
        // block that is never handed out.
        arm_and_free(&home, 200);
        all_memory_is_spare();
        assert_eq!(give_all_by(give), 3 * 4_096);
        // Two fifths of these are in the depot's lists, and the others are too few to be returned.
        arm_and_free(&home, 5_000);
        let given = [(); 2].map(|()| {
            note_spare_memory();
            give_all_by(give)
        });
        assert_eq!(given[0], 0, "it was wanted in this period");
        let freed = 5_000 * 64;
        assert!(given[1] > freed / 10 * 9, "{given:?} of {freed}");
        drop(home.close());
    });
}

/// Threads arm and free timers while another thread returns all free memory again and again, and
/// one ends periods.
#[test]
fn memory_is_returned_while_threads_arm_and_free() {
    alone(|| {
        const THREADS: u64 = 3;
        let over = std::sync::atomic::AtomicBool::new(false);
        let ran = AtomicUsize::new(0);
        let given = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let ran = Arc::new(AtomicUsize::new(0));
                    scope.spawn(move || {
                        let home = Arc::new(Shard::new(Nobody));
                        for round in 0..40 {
                            let expect = [thread * 1_000_003 + round; 4];
                            let timers: Vec<_> = (0..8_000)
                                .map(|i| {
                                    let (captured, ran) = ([expect[0] + i; 4], ran.clone());
                                    Timer::once(&home, 1, 0, move || {
                                        assert_eq!(captured, [expect[0] + i; 4]);
                                        ran.fetch_add(1, Relaxed);
                                    })
                                })
                                .collect();
                            let cancelled = timers.iter().step_by(2).map(Timer::cancel);
                            assert!(cancelled.into_iter().all(|it| it == Cancel::Cancelled));
                            let mut due = Vec::new();
                            home.expire(1, usize::MAX, &mut due);
                            due.into_iter()
                                .for_each(|it| assert!(matches!(it.run(|| 1), Ran::Fired)));
                        }
                        drop(home.close());
                        ran.load(Relaxed)
                    })
                })
                .collect();
            let gives = scope.spawn(|| {
                let mut rounds = 0;
                while !over.load(Relaxed) {
                    all_memory_is_spare();
                    while return_spare_memory(give) == Returned::Some {
                        rounds += 1;
                    }
                }
                rounds
            });
            let ends_periods = scope.spawn(|| {
                while !over.load(Relaxed) {
                    note_spare_memory();
                }
            });
            for thread in threads {
                ran.fetch_add(thread.join().unwrap(), Relaxed);
            }
            over.store(true, Relaxed);
            ends_periods.join().unwrap();
            gives.join().unwrap()
        });
        assert_eq!(ran.load(Relaxed) as u64, THREADS * 40 * 4_000);
        assert!(given > 10, "it was given back {given} times");
    });
}
