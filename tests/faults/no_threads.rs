//! A system without threads or memory: the caller gets an error, nothing leaks, and what runs
//! continues.

use std::{
    collections::HashSet,
    hint::black_box,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    ArmError, BuildError, Timer,
    runtime::Builder,
    task::{block_in_place, yield_now},
    time::sleep,
    timer::Cancel,
};

use crate::{
    common::{
        Drops, Gate, HOUR, PATIENCE, alarm,
        blocked::{AllBlocked, Blocked},
        eventually, fds, limit,
        process::{alone, child, is_child},
        skip, threads,
        told::worker_number,
    },
    system_calls::{Faulty, call, error_of},
};

/// Lets the test control the calls that start a thread. glibc uses the first, or the second where
/// the first does not exist.
fn clones() -> Option<Faulty> {
    Faulty::calls(&[call(libc::SYS_clone3), call(libc::SYS_clone)])
}

/// The errors of the kernel if a limit is reached, and if it has no memory.
const ANSWERS: [libc::c_int; 2] = [libc::EAGAIN, libc::ENOMEM];

fn is_refused() -> bool {
    thread::Builder::new().spawn(|| ()).is_err()
}

#[test]
fn a_build_that_lacks_any_thread_is_an_error_and_leaks_nothing() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = clones() else { return };
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static STOPPED: AtomicUsize = AtomicUsize::new(0);
        let build = || {
            Builder::new()
                .worker_threads(3)
                .helpers(2..=4)
                .on_thread_start(|| _ = STARTED.fetch_add(1, SeqCst))
                .on_thread_stop(|| _ = STOPPED.fetch_add(1, SeqCst))
                .build()
        };
        let others = threads();
        drop(build().unwrap());
        let open = fds();
        let is_left = || threads() > others || fds() > open;
        for answer in ANSWERS {
            // Three workers and two helpers.
            for pass in 0..5 {
                let failed = faulty.failed();
                faulty.after(pass, 1, answer);
                let error = build().expect_err("one thread is missing");
                assert_eq!(faulty.failed(), failed + 1);
                let BuildError::Os { what, source } = &error else {
                    panic!("{error:?}");
                };
                assert!(what.contains("thread"), "{what}");
                // glibc reports the same error for both.
                assert_eq!(source.raw_os_error(), Some(libc::EAGAIN));
                assert!(error.to_string().contains("ulimit -u"), "{error}");
                eventually("nothing is left", || !is_left());
                assert_eq!(STARTED.load(SeqCst), STOPPED.load(SeqCst));
            }
            faulty.after(5, 1, answer);
            let runtime = build().expect("all that it asks for");
            runtime.block_on(sleep(Duration::from_millis(1)));
            faulty.heal();
        }
    });
}

/// A peer takes over the work of a stuck worker, though no helper can start to take the peer's
/// place. When helpers can start again, one does.
#[test]
fn rescue_works_when_no_helper_can_be_started() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = clones() else { return };
        let open = {
            let _without_helpers = crate::common::runtime(2);
            fds()
        };
        // Only the workers start.
        faulty.after(2, usize::MAX, libc::EAGAIN);
        let runtime = Builder::new()
            .worker_threads(2)
            .helpers(0..=1)
            .build()
            .unwrap();
        assert!(is_refused(), "the fault is there");
        let failed = faulty.failed();
        let (sender, receiver) = mpsc::channel();
        let (blocked, ()) = Blocked::after(runtime.handle(), {
            let sender = sender.clone();
            move || {
                for _ in 0..200 {
                    let due = Instant::now() + Duration::from_millis(20);
                    let sender = sender.clone();
                    tourbillon::at(due, move || {
                        sender.send((due, Instant::now(), worker_number())).unwrap();
                    });
                }
            }
        });
        for _ in 0..200 {
            let (due, at, worker) = receiver.recv_timeout(PATIENCE).expect("the peer comes");
            assert!(at >= due, "early");
            assert_eq!(worker, Some(1 - blocked.worker));
        }
        assert!(faulty.failed() > failed, "a helper was asked for");
        eventually("those that could not be had leave nothing", || {
            fds() == open && runtime.metrics().num_helpers() == 0
        });
        drop(blocked);
        faulty.heal();
        // The next thread that leaves the reserve tries again to start a helper, if no thread is
        // in reserve.
        eventually("a helper is there", || {
            let jobs: Vec<_> = (0..2).map(|_| runtime.spawn(async {})).collect();
            for job in jobs {
                runtime.block_on(job).unwrap();
            }
            runtime.metrics().num_helpers() == 1
        });
        let all = AllBlocked::after(&runtime, {
            move |_| {
                let (due, sender) = (Instant::now(), sender.clone());
                tourbillon::after(Duration::from_millis(5), move || {
                    sender.send((due, Instant::now(), worker_number())).unwrap();
                });
            }
        });
        for _ in 0..2 {
            let (_, _, worker) = receiver.recv_timeout(PATIENCE).expect("a helper comes");
            assert_eq!(worker, None, "all workers are blocked");
        }
        drop(all);
    });
}

/// No thread can replace the blocked worker, so its work is late, but not lost.
#[test]
fn without_a_replacement_work_waits_for_block_in_place_to_end() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = clones() else { return };
        let runtime = crate::common::runtime(1);
        faulty.after(0, usize::MAX, libc::EAGAIN);
        let failed = faulty.failed();
        let (sender, receiver) = mpsc::channel();
        let blocks = runtime.spawn(async move {
            let due = Instant::now() + Duration::from_millis(5);
            tourbillon::at(due, move || {
                sender.send(Instant::now() >= due).unwrap();
            });
            let other = tourbillon::spawn(async { 7 });
            block_in_place(|| thread::sleep(Duration::from_millis(20)));
            yield_now().await;
            other.await.unwrap()
        });
        assert_eq!(runtime.block_on(blocks).unwrap(), 7);
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(true));
        assert!(faulty.failed() > failed, "a helper was asked for");
        faulty.heal();
    });
}

/// Without a thread, blocking jobs are refused. With one thread, it runs all jobs. When more
/// threads can start, they do.
#[test]
fn blocking_jobs_run_on_the_existing_threads() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = clones() else { return };
        let runtime = crate::common::runtime(1);
        for answer in ANSWERS {
            faulty.after(0, usize::MAX, answer);
            let drops = Drops::new();
            let token = drops.token();
            let error = runtime
                .block_on(runtime.spawn_blocking(move || drop(token)))
                .unwrap_err();
            assert!(error.is_refused(), "{error}");
            assert_eq!(drops.count(), 1, "dropped, and not lost");
            // The same holds for a job that a task spawns.
            let inner = runtime.spawn(async {
                let refused = tourbillon::task::spawn_blocking(|| ()).await;
                refused.unwrap_err().is_refused()
            });
            assert!(runtime.block_on(inner).unwrap());
            assert_eq!(runtime.metrics().num_blocking_threads(), 0);
            assert_eq!(runtime.metrics().blocking_queue_depth(), 0);
        }
        // One thread can start, and no more.
        faulty.after(1, usize::MAX, libc::EAGAIN);
        let (started, release) = (Gate::new(), Gate::new());
        let (begun, wait) = (started.clone(), release.clone());
        let first = runtime.spawn_blocking(move || {
            begun.open();
            wait.wait();
            thread::current().id()
        });
        started.wait();
        let order = Arc::new(Mutex::new(Vec::new()));
        let jobs: Vec<_> = (0..50)
            .map(|i| {
                let order = order.clone();
                runtime.spawn_blocking(move || {
                    order.lock().unwrap().push(i);
                    thread::current().id()
                })
            })
            .collect();
        assert_eq!(runtime.metrics().num_blocking_threads(), 1);
        assert_eq!(runtime.metrics().blocking_queue_depth(), 50);
        release.open();
        let only = runtime.block_on(first).unwrap();
        for job in jobs {
            assert_eq!(runtime.block_on(job).unwrap(), only);
        }
        assert!(
            order.lock().unwrap().is_sorted(),
            "first come, first served"
        );
        // As many threads start as there are jobs.
        faulty.heal();
        let all_here = Arc::new(std::sync::Barrier::new(4));
        let jobs: Vec<_> = (0..4)
            .map(|_| {
                let all_here = all_here.clone();
                runtime.spawn_blocking(move || {
                    all_here.wait();
                    thread::current().id()
                })
            })
            .collect();
        let of: HashSet<_> = jobs
            .into_iter()
            .map(|job| runtime.block_on(job).unwrap())
            .collect();
        assert_eq!(of.len(), 4);
    });
}

/// The per-user limits do not bind root. For another user, the limit of threads does.
#[test]
fn the_limit_of_threads_is_an_error_with_a_hint() {
    alone(|| {
        let _alarm = alarm();
        // SAFETY: the call takes no arguments.
        let is_root = unsafe { libc::geteuid() } == 0;
        if is_root {
            // A user id that no other process has, so that all of its threads are ours.
            let nobody = 1_000_000_000 + std::process::id();
            // SAFETY: as above.
            let set = unsafe { libc::setresuid(nobody, nobody, nobody) };
            if set != 0 {
                return skip("this root may not be anybody else");
            }
        }
        let others = threads();
        limit(libc::RLIMIT_NPROC, others as u64);
        if !is_root && !is_refused() {
            return skip("the limit of threads does not bind this user");
        }
        let mut refused = 0;
        for more in 0..=4 {
            limit(libc::RLIMIT_NPROC, (others + more) as u64);
            match Builder::new().worker_threads(4).build() {
                Ok(runtime) => {
                    assert_eq!(more, 4, "as many as are allowed");
                    runtime.block_on(sleep(Duration::from_millis(1)));
                    drop(runtime);
                }
                Err(error) => {
                    assert!(error.to_string().contains("ulimit -u"), "{error}");
                    refused += 1;
                }
            }
            eventually("nothing is left", || threads() <= others);
        }
        // Another user's threads count, too.
        assert!(refused == 4 || (!is_root && refused > 4), "{refused}");
    });
}

/// Limits the address space of the process to its present size and `more` bytes.
fn limit_space(more: u64) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: the call takes a number.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
    limit(libc::RLIMIT_AS, pages * page + more);
    // SAFETY: only the answer is compared. A mapping that succeeds is never used.
    let mapped = unsafe {
        let prot = libc::PROT_NONE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(
            std::ptr::null_mut(),
            (more + page) as usize,
            prot,
            flags,
            -1,
            0,
        )
    };
    assert_eq!(error_of(mapped as libc::c_long), Some(libc::ENOMEM));
}

/// Room for some hundred thousand timers.
const SPACE: u64 = 64 << 20;

/// A process without memory ends at once and says why, as any program in Rust does. No half-done
/// operation continues.
#[test]
fn running_out_of_memory_ends_the_process_with_a_message() {
    use std::os::unix::process::ExitStatusExt;

    const NAME: &str = "no_threads::running_out_of_memory_ends_the_process_with_a_message";
    if is_child(NAME) {
        let runtime = crate::common::runtime(1);
        // A thread that starts needs memory, too. So wait until the worker runs.
        crate::common::on_worker(&runtime, || ());
        limit_space(SPACE);
        for i in 0_u64.. {
            // A node has no room for this closure, so each timer has an allocation of its own.
            let captured = [i; 8];
            runtime
                .handle()
                .after(HOUR, move || _ = black_box(captured));
        }
    }
    let _alarm = alarm();
    let ended = child(NAME)
        // The process has no memory for a backtrace.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("memory allocation of"), "{said}");
}

/// With a bound on the number of timers, a program gets an error and continues.
#[test]
fn max_timers_is_an_error_before_memory_runs_out() {
    alone(|| {
        let _alarm = alarm();
        const BOUND: usize = 50_000;
        let runtime = Builder::new()
            .worker_threads(1)
            .max_timers(BOUND)
            .build()
            .unwrap();
        crate::common::on_worker(&runtime, || ());
        limit_space(SPACE);
        let fired = Arc::new(AtomicUsize::new(0));
        let mut armed = Vec::with_capacity(BOUND);
        for _ in 0..3 {
            armed.clear();
            fired.store(0, SeqCst);
            let error = loop {
                let fired = fired.clone();
                let captured = [0_u64; 8];
                match Timer::after(HOUR).on(runtime.handle()).try_start(move || {
                    black_box(captured);
                    fired.fetch_add(1, SeqCst);
                }) {
                    Ok(timer) => armed.push(timer),
                    Err(error) => break error,
                }
            };
            assert_eq!(error, ArmError::Full { max_timers: BOUND });
            assert_eq!(armed.len(), BOUND);
            // Cancel half of the timers, and let the others fire.
            for (i, timer) in armed.iter().enumerate() {
                match i % 2 {
                    0 => assert_eq!(timer.cancel(), Cancel::Cancelled),
                    _ => drop(timer.reset_after(Duration::from_millis(1))),
                }
            }
            eventually("the others come", || fired.load(SeqCst) == BOUND / 2);
        }
    });
}
