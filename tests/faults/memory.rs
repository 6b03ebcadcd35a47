//! Memory is returned to the system when a burst of timers is over: after some seconds, and when
//! the last runtime is dropped.
//!
//! Each test runs in a process of its own, whose resident memory it reads.

use std::{
    collections::VecDeque,
    fs,
    hint::black_box,
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{Runtime, Timer};

use crate::common::{
    HOUR, alarm, eventually,
    process::{alone_as, test_name},
    runtime,
};

const TIMERS: usize = 300_000;

/// Resident anonymous memory, in bytes. The pages of the program itself do not count: more of them
/// are loaded as it runs.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.unwrap().parse::<usize>().unwrap() * 1024
}

/// Arms a burst of timers in a task, and cancels all but one in `stay`, in random order. Returns
/// the timers that stay, and the memory that the burst took.
fn burst(runtime: &Runtime, stay: usize) -> (Vec<Timer>, usize) {
    let before = resident();
    let handle = runtime.handle().clone();
    let task = runtime.spawn(async move {
        let arm = |i: usize| {
            let captured = [i; 5];
            handle.after(HOUR + Duration::from_micros(i as u64), move || {
                _ = black_box(captured)
            })
        };
        let mut timers: Vec<_> = (0..TIMERS).map(arm).collect();
        let peak = resident();
        let mut random = 7_usize;
        for at in (1..TIMERS).rev() {
            random = random * 48_271 % 0x7fff_ffff;
            timers.swap(at, random % (at + 1));
        }
        timers
            .drain(TIMERS / stay..)
            .for_each(|timer| _ = timer.cancel());
        timers.shrink_to_fit();
        (timers, peak)
    });
    let (timers, peak) = runtime.block_on(task).unwrap();
    (timers, peak - before)
}

/// Runs `test` in a process of its own, in which a large block goes back to the system when it is
/// freed. By default, glibc keeps up to twice the largest block that was freed, for each of its
/// arenas: which blocks these are depends on when the threads run.
fn alone<F: FnOnce()>(test: F) {
    alone_as(test_name::<F>(), || {
        // SAFETY: the call sets a number, which glibc then adapts no more.
        #[cfg(target_env = "gnu")]
        let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024) };
        #[cfg(target_env = "gnu")]
        assert_eq!(is_set, 1);
        test();
    });
}

/// Memory that the allocator and the threads' stacks may have taken in addition.
const SLACK: usize = 2 * 1024 * 1024;

#[test]
fn memory_of_a_burst_is_returned_while_the_runtime_is_idle() {
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(2);
        let base = resident();
        let (mut timers, took) = burst(&runtime, 1_000);
        assert!(took > TIMERS * 100, "{took}");
        eventually("most of it goes back though some timers stay", || {
            thread::sleep(Duration::from_millis(100));
            resident() < base + took / 3
        });
        timers.drain(..).for_each(|timer| _ = timer.cancel());
        // Arm a second burst, in memory that was returned to the system.
        let (timers, _) = burst(&runtime, TIMERS);
        drop(timers);
        eventually("it goes back again", || {
            thread::sleep(Duration::from_millis(100));
            resident() < base + took / 3
        });
        drop(runtime);
    });
}

#[test]
fn no_worker_wakes_where_no_memory_is_to_be_returned() {
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(2);
        drop(burst(&runtime, TIMERS));
        let parks = || runtime.metrics().total().parks();
        eventually("all is done and the workers sleep", || {
            let before = parks();
            thread::sleep(Duration::from_secs(5));
            parks() == before
        });
    });
}

#[test]
fn the_last_runtime_returns_its_memory() {
    alone(|| {
        let _alarm = alarm();
        let base = resident();
        let (one, other) = (runtime(1), runtime(1));
        let (timers, took) = burst(&one, 1);
        drop(other);
        assert!(resident() > base + took / 2, "one has its timers still");
        drop(one);
        drop(timers);
        // The handles were dropped last, so the next runtime returns their memory.
        drop(runtime(1));
        let left = resident().saturating_sub(base);
        assert!(left < took / 5 + SLACK, "{left} of {took} are left");
    });
}

/// Remote threads arm and cancel timers while all workers sleep. The memory of the nodes is
/// returned, and that of the arrays of both shards, though nothing else wakes a worker.
#[test]
fn memory_freed_by_remote_threads_is_returned_while_workers_sleep() {
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(2);
        let base = resident();
        for is_first in [true, false] {
            let arm = |i: usize| runtime.handle().after(HOUR, move || _ = black_box([i; 5]));
            let timers: Vec<_> = (0..TIMERS).map(arm).collect();
            let parks = || runtime.metrics().total().parks();
            eventually("the workers sleep", || {
                let before = parks();
                thread::sleep(Duration::from_millis(300));
                parks() == before
            });
            let took = resident() - base;
            assert!(took > TIMERS * 90, "{took}");
            timers.iter().for_each(|timer| _ = timer.cancel());
            drop(timers);
            // The first time, the arrays of one shard alone take more than this. Later, the
            // allocator may keep some of the memory that is freed.
            let most = if is_first { 2 * SLACK } else { took / 3 };
            eventually("it goes back", || {
                thread::sleep(Duration::from_millis(100));
                resident() < base + most
            });
        }
    });
}

/// If the runtime whose worker was woken for memory ends before it has returned the memory,
/// workers of another runtime return it, though they have slept all the time.
#[test]
fn memory_is_returned_though_the_runtime_in_charge_ends() {
    alone(|| {
        let _alarm = alarm();
        let base = resident();
        let (one, other) = (runtime(1), runtime(1));
        let timers: Vec<_> = (0..TIMERS)
            .map(|i| one.handle().after(HOUR, move || _ = black_box([i; 5])))
            .collect();
        let took = resident() - base;
        thread::sleep(Duration::from_millis(300));
        timers.iter().for_each(|timer| _ = timer.cancel());
        drop(timers);
        drop(one);
        eventually("it goes back", || {
            thread::sleep(Duration::from_millis(100));
            resident() < base + took / 5 + SLACK
        });
        drop(other);
    });
}

/// Some threads arm timers and others cancel them as fast as they can, so that few exist at any
/// moment. While a thread with a shard's lock is not running, cancelled timers pile up; their
/// memory is returned.
#[test]
fn arming_and_cancelling_few_at_a_time_does_not_grow_memory() {
    alone(|| {
        const ALIVE: usize = 2_000;
        const COUNT: usize = 400_000;
        let _alarm = alarm();
        let runtime = runtime(2);
        let round = || {
            let done = &AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    let (sender, receiver) = mpsc::sync_channel::<Timer>(ALIVE / 4);
                    let runtime = &runtime;
                    scope.spawn(move || {
                        for i in 0..COUNT / 4 {
                            let f = move || _ = black_box([i; 3]);
                            sender.send(runtime.handle().after(HOUR, f)).unwrap();
                        }
                    });
                    scope.spawn(move || {
                        let mut held = VecDeque::new();
                        for timer in receiver {
                            held.push_back(timer);
                            if held.len() > ALIVE / 4 {
                                done.fetch_add(1, Relaxed);
                                held.pop_front().map(|timer: Timer| timer.cancel());
                            }
                        }
                        held.drain(..).for_each(|timer| _ = timer.cancel());
                    });
                }
            });
        };
        round();
        let base = resident();
        let begun = Instant::now();
        (0..5).for_each(|_| round());
        eprintln!(
            "{} after {:?}",
            resident() - base.min(resident()),
            begun.elapsed()
        );
        eventually("it goes back", || {
            thread::sleep(Duration::from_millis(100));
            resident() < base + SLACK
        });
    });
}
