//! A program that allocates and frees again and again takes no more memory, whichever thread frees
//! the blocks, and gives back what it does not need.
//!
//! This program stands alone: it counts the allocations of its processes.
#![cfg(not(any(loom, miri, tourbillon_no_pool, tourbillon_sim)))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    any::type_name,
    env,
    process::Command,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use tourbillon_pool::{
    Returned, all_is_spare, alloc, dealloc, has_spare, note_spare, prepare_by, return_spare,
    wake_by,
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

/// A block that is full of one number.
struct Block {
    at: NonNull<u64>,
    layout: Layout,
    number: u64,
}

// SAFETY: the block belongs to this value, and any thread may free it.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: usize, number: u64) -> Self {
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        // SAFETY: the size is not zero.
        let at = unsafe { alloc(layout) }.cast::<u64>();
        for word in 0..bytes / 8 {
            // SAFETY: the block has so many words.
            unsafe { at.add(word).write(number) };
        }
        Self { at, layout, number }
    }

    fn is_intact(&self) -> bool {
        // SAFETY: the block has so many words, and `new` wrote them.
        (0..self.layout.size() / 8).all(|word| unsafe { self.at.add(word).read() } == self.number)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        assert!(self.is_intact(), "another thread wrote into it");
        // SAFETY: it is from `alloc` with this layout, and ends here.
        unsafe { dealloc(self.at.cast(), self.layout) };
    }
}

fn some(count: u64, bytes: usize) -> Vec<Block> {
    (0..count).map(|number| Block::new(bytes, number)).collect()
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
    while return_spare(give) == Returned::More {}
    GIVEN.load(Relaxed) - before
}

#[test]
fn blocks_that_another_thread_frees_are_used_again() {
    alone(|| {
        let round = || {
            let blocks = some(1_000, 64);
            thread::spawn(move || drop(blocks)).join().unwrap();
        };
        round();
        let before = ALLOCATED.load(Relaxed);
        for _ in 0..100 {
            round();
        }
        // Each round allocates its vector and its thread. The blocks would take 64,000 bytes more.
        let each = (ALLOCATED.load(Relaxed) - before) / 100;
        assert!(each < 64_000, "{each} bytes for each round");
    });
}

static READY: AtomicUsize = AtomicUsize::new(0);

#[test]
fn memory_for_very_many_blocks_is_prepared() {
    alone(|| {
        prepare_by(|at, bytes| {
            assert!(!at.is_null());
            assert!(bytes > 0, "there is nothing to prepare");
            READY.fetch_add(bytes, Relaxed);
        });
        let few = some(10_000, 64);
        assert_eq!(READY.load(Relaxed), 0);
        let many = some(200_000, 64);
        let (ready, most) = (READY.load(Relaxed), 200_000 * 64);
        assert!(ready > most / 2 && ready < most + 1024 * 1024, "{ready}");
        drop((few, many));
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
        let mut random = 7_u64;
        for round in 0..3 {
            // Blocks of two sizes.
            let mut blocks: Vec<_> = (0..COUNT)
                .map(|i| Block::new(if i % 2 == 0 { 64 } else { 80 }, (i + round) as u64))
                .collect();
            assert_eq!(give_all(), 0, "it was not free for a period");
            // Free in no particular order. A few blocks stay, and their pages with them.
            for at in (1..blocks.len()).rev() {
                random = random * 48_271 % 0x7fff_ffff;
                blocks.swap(at, random as usize % (at + 1));
            }
            let stay = blocks.split_off(COUNT - 100);
            drop(blocks);
            assert!(has_spare());
            note_spare();
            // Earlier rounds may have left a few free pages, which this period did not need.
            let early = give_all();
            assert!(
                early < 64 * 1024,
                "{early} bytes were wanted in this period"
            );
            assert!(has_spare(), "there is to be another look");
            note_spare();
            let (given, freed) = (give_all(), COUNT * (64 + 80) / 2);
            assert!(
                given > freed * 8 / 10 && given < freed * 12 / 10,
                "{given} of {freed}"
            );
            assert!(!has_spare());
            note_spare();
            assert_eq!(give_all(), 0, "the system has it");
            assert!(stay.iter().all(Block::is_intact));
        }
    });
}

/// A burst that is smaller than an earlier one fits into memory that the system already has. The
/// system's share of the earlier burst must not hide what is free after the later one.
#[test]
fn memory_of_a_small_burst_after_a_large_one_is_returned() {
    alone(|| {
        for count in [200_000, 80_000, 20_000, 80_000] {
            let mut given = 0;
            drop(some(count, 112));
            // After the first period the freed memory may still be wanted. The second period
            // returns it.
            for _ in 0..2 {
                assert!(has_spare(), "{count} blocks are worth a look");
                note_spare();
                given += give_all_by(give);
            }
            assert!(!has_spare());
            let freed = count as usize * 112;
            assert!(given > freed / 10 * 9, "{given} of {freed}");
            assert!(given < freed / 10 * 11, "{given} of {freed}");
        }
    });
}

/// Freed blocks wake a thread once in each period, and only if they take much memory.
#[test]
fn much_free_memory_wakes_a_thread_once_in_a_period() {
    alone(|| {
        static WOKEN: AtomicUsize = AtomicUsize::new(0);
        wake_by(|| _ = WOKEN.fetch_add(1, Relaxed));
        wake_by(|| panic!("the first one stays"));
        drop(some(3_000, 64));
        assert_eq!(WOKEN.load(Relaxed), 0, "too little memory");
        assert!(!has_spare());
        for period in 1..4 {
            for _ in 0..3 {
                drop(some(50_000, 64));
                assert_eq!(WOKEN.load(Relaxed), period);
                assert!(has_spare());
            }
            all_is_spare();
            assert!(!has_spare());
        }
    });
}

/// A few free pages are not worth the calls of the system, unless all memory is to be returned.
#[test]
fn little_free_memory_is_kept() {
    alone(|| {
        drop(some(3_000, 64));
        for _ in 0..3 {
            note_spare();
            assert_eq!(return_spare(give), Returned::Done);
        }
        assert_eq!(GIVEN.load(Relaxed), 0);
        all_is_spare();
        let (given, freed) = (give_all_by(give), 3_000 * 64);
        assert!(given > freed / 2, "{given} of {freed}");
    });
}

/// The blocks that a thread keeps for itself, and those that the depot keeps in the order in which
/// they were freed, are free memory like all others.
#[test]
fn all_free_memory_counts_wherever_it_is() {
    alone(|| {
        // The thread keeps all of these. They take four pages, and the first of these has the
        // block that is never handed out.
        drop(some(200, 64));
        all_is_spare();
        assert_eq!(give_all_by(give), 3 * 4_096);
        // Two fifths of these are in the depot's lists, and the others are too few to be returned.
        drop(some(5_000, 64));
        let given = [(); 2].map(|()| {
            note_spare();
            give_all_by(give)
        });
        assert_eq!(given[0], 0, "it was wanted in this period");
        let freed = 5_000 * 64;
        assert!(given[1] > freed / 10 * 9, "{given:?} of {freed}");
    });
}

/// Threads allocate and free while another thread returns all free memory again and again, and one
/// ends periods.
#[test]
fn memory_is_returned_while_threads_allocate_and_free() {
    alone(|| {
        const THREADS: u64 = 3;
        let over = AtomicBool::new(false);
        let given = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        for round in 0..40 {
                            let first = thread * 1_000_003 + round;
                            // Each block checks its content when it is dropped.
                            let mut blocks: Vec<_> =
                                (0..8_000).map(|i| Block::new(64, first + i)).collect();
                            let mut number = 0;
                            blocks.retain(|_| {
                                number += 1;
                                number % 2 == 0
                            });
                            drop(blocks);
                        }
                    })
                })
                .collect();
            let gives = scope.spawn(|| {
                let mut rounds = 0;
                while !over.load(Relaxed) {
                    all_is_spare();
                    while return_spare(give) == Returned::More {
                        rounds += 1;
                    }
                }
                rounds
            });
            let ends_periods = scope.spawn(|| {
                while !over.load(Relaxed) {
                    note_spare();
                }
            });
            for thread in threads {
                thread.join().unwrap();
            }
            over.store(true, Relaxed);
            ends_periods.join().unwrap();
            gives.join().unwrap()
        });
        assert!(given > 10, "it was given back {given} times");
    });
}
