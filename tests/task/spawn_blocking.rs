//! `spawn_blocking` runs its jobs on threads of their own, and the join handle returns the result.

use std::{
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::{
    Drops, Gate, PATIENCE, alarm,
    blocking::{block_a_thread, one_blocking_thread},
    eventually,
    process::alone,
    runtime,
};
use tourbillon::{
    Handle,
    runtime::Builder,
    task::spawn_blocking,
    time::{Instant, sleep},
};

#[test]
fn a_join_handle_returns_the_result_of_its_job() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let sum = runtime.block_on(async {
        let free = spawn_blocking(|| 1).await.unwrap();
        let on_handle = Handle::current().spawn_blocking(|| 2).await.unwrap();
        free + on_handle
    });
    let on_runtime = runtime.spawn_blocking(|| 3);
    assert_eq!(sum + runtime.block_on(on_runtime).unwrap(), 6);
}

#[test]
fn jobs_that_run_are_listed_with_their_threads() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, threads) = mpsc::channel();
    let release = Gate::new();
    let job = {
        let release = release.clone();
        move || {
            // SAFETY: the call has no preconditions.
            sender.send(unsafe { libc::gettid() } as u32).unwrap();
            release.wait();
            panic_any("a job that panics has ended, too");
        }
    };
    let ends = runtime.spawn_blocking(job);
    let thread = threads.recv_timeout(PATIENCE).unwrap();
    let [running] = runtime.blocking_jobs()[..] else {
        panic!("{:?}", runtime.blocking_jobs());
    };
    assert_eq!(running.thread, thread);
    let name = running.job.name;
    let own = "task::spawn_blocking::jobs_that_run_are_listed_with_their_threads::";
    assert!(name.starts_with(own), "{name}");
    assert_eq!(running.job.spawned.unwrap().file(), file!());
    let later = runtime.blocking_jobs().remove(0);
    assert!(later.number == running.number && later.elapsed >= running.elapsed);
    release.open();
    assert!(runtime.block_on(ends).unwrap_err().is_panic());
    eventually("it is over", || runtime.blocking_jobs().is_empty());
}

#[test]
fn jobs_run_while_all_workers_are_blocked() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let release = Gate::new();
    for _ in 0..2 {
        let (started, release) = (Gate::new(), release.clone());
        let stuck = started.clone();
        runtime.spawn(async move {
            stuck.open();
            release.wait();
        });
        started.wait();
    }
    let job = runtime.spawn_blocking(|| 5);
    assert_eq!(futures_lite::future::block_on(job).unwrap(), 5);
    release.open();
}

#[test]
fn workers_go_on_while_jobs_block() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let release = Gate::new();
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let release = release.clone();
            runtime.spawn_blocking(move || release.wait())
        })
        .collect();
    runtime.block_on(sleep(Duration::from_millis(1)));
    assert!(jobs.iter().all(|job| !job.is_finished()));
    release.open();
    for job in jobs {
        runtime.block_on(job).unwrap();
    }
}

#[test]
fn a_panic_is_returned_to_the_join_handle_and_the_thread_goes_on() {
    let _alarm = alarm();
    let runtime = one_blocking_thread();
    for _ in 0..3 {
        let error = runtime
            .block_on(runtime.spawn_blocking(|| panic_any(7_u8)))
            .unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled() && !error.is_refused());
        assert_eq!(*error.into_panic().downcast::<u8>().unwrap(), 7);
    }
    assert_eq!(runtime.metrics().num_blocking_threads(), 1);
    assert_eq!(runtime.metrics().total().panics(), 3);
    // The panic's payload, or the output, may panic in its own destructor.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    drop(runtime.spawn_blocking(|| panic_any(Bomb)));
    drop(runtime.spawn_blocking(|| Bomb));
    assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 1)).unwrap(), 1);
}

#[test]
fn a_job_runs_on_when_its_handle_is_dropped() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (release, ran) = (Gate::new(), Gate::new());
    let (inner, done) = (release.clone(), ran.clone());
    drop(runtime.spawn_blocking(move || {
        inner.wait();
        done.open();
    }));
    release.open();
    ran.wait();
}

#[test]
fn an_abort_drops_a_queued_job_but_not_a_running_one() {
    let _alarm = alarm();
    let runtime = one_blocking_thread();
    let (running, release) = block_a_thread(&runtime);
    let drops = Drops::new();
    let token = drops.token();
    let queued = runtime.spawn_blocking(move || {
        let _token = token;
        unreachable!("it was aborted")
    });
    let last = runtime.spawn_blocking(|| 3);
    queued.abort();
    running.abort();
    // The thread is still busy when the queued job is dropped.
    let error = runtime.block_on(queued).map(|(): ()| ()).unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(drops.count(), 1);
    assert_eq!(runtime.metrics().blocking_queue_depth(), 1);
    assert!(!running.is_finished());
    release.open();
    running.abort();
    assert_eq!(runtime.block_on(running).unwrap(), 1);
    last.abort();
    // The abort comes before or after the job runs. The handle completes in both cases.
    let _ = runtime.block_on(last);
}

#[test]
fn a_job_has_the_context_of_its_runtime() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let job = runtime.spawn_blocking(|| {
        let name = thread::current().name().map(str::to_owned);
        let (sender, fired) = mpsc::channel();
        tourbillon::after(Duration::ZERO, move || sender.send(()).unwrap());
        fired.recv_timeout(PATIENCE).unwrap();
        let start = Instant::now();
        let inner = Handle::current().block_on(async {
            sleep(Duration::from_millis(1)).await;
            tourbillon::spawn(async { 1 }).await.unwrap() + spawn_blocking(|| 2).await.unwrap()
        });
        assert!(start.elapsed() >= Duration::from_millis(1));
        (name, inner)
    });
    let (name, inner) = runtime.block_on(job).unwrap();
    assert_eq!(name.as_deref(), Some("tourbillon-blocking-0"));
    assert_eq!(inner, 3);
}

/// Returns the list of the cores that the calling thread may use.
fn cores() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let cores = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list"));
    cores.unwrap().to_owned()
}

#[test]
fn blocking_threads_have_the_affinity_of_the_process() {
    alone(|| {
        let process = cores();
        let core = usable_core();
        let runtime = Builder::new()
            .worker_threads(1)
            .cores([core])
            .build()
            .unwrap();
        let (worker, job) = runtime
            .block_on(runtime.spawn(async {
                let job = spawn_blocking(cores);
                (cores(), job.await.unwrap())
            }))
            .unwrap();
        assert_eq!(worker.split('\t').nth(1), Some(&*core.to_string()));
        assert_eq!(job, process);
    });
}

/// Returns a core that the process may use.
fn usable_core() -> usize {
    // SAFETY: the call takes no pointers.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap()
}

#[test]
fn thousands_of_jobs_run_once_each() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .max_blocking_threads(4)
        .thread_keep_alive(Duration::from_micros(50))
        .build()
        .unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let spawn = |handle: &Handle| {
        let ran = ran.clone();
        handle.spawn_blocking(move || ran.fetch_add(1, SeqCst))
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for i in 0..3_000 {
                    let job = spawn(runtime.handle());
                    match i % 3 {
                        0 => drop(job),
                        1 => drop(futures_lite::future::block_on(job).unwrap()),
                        _ => drop(runtime.spawn(async move { job.await.unwrap() })),
                    }
                }
            });
        }
    });
    eventually("all have run", || ran.load(SeqCst) == 9_000);
    assert!(runtime.metrics().num_blocking_threads() <= 4);
    assert!(runtime.shutdown_graceful(PATIENCE));
    assert_eq!(ran.load(SeqCst), 9_000);
}

#[test]
fn aborts_of_queued_jobs_lose_no_job() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .max_blocking_threads(2)
        .build()
        .unwrap();
    let (ran, drops) = (Arc::new(AtomicUsize::new(0)), Drops::new());
    let mut cancelled = 0;
    for _ in 0..5_000 {
        let (count, token) = (ran.clone(), drops.token());
        let job = runtime.spawn_blocking(move || {
            drop(token);
            count.fetch_add(1, SeqCst);
        });
        job.abort();
        cancelled += usize::from(futures_lite::future::block_on(job).is_err());
    }
    assert_eq!(ran.load(SeqCst) + cancelled, 5_000);
    assert_eq!(drops.count(), 5_000);
}

/// Limits the process to `more` bytes of address space beyond what it uses, or removes the limit.
fn limit_space(more: Option<u64>) {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: `limits` is valid for the write of `getrlimit` and for the read of `setrlimit`.
    let set = unsafe {
        libc::getrlimit(libc::RLIMIT_AS, &mut limits);
        limits.rlim_cur = more.map_or(limits.rlim_max, |more| pages * 4096 + more);
        libc::setrlimit(libc::RLIMIT_AS, &limits)
    };
    assert_eq!(set, 0, "a soft limit may always be moved");
}

#[test]
fn without_a_new_thread_a_job_waits_or_fails() {
    alone(|| {
        const STACK: usize = 256 << 20;
        let runtime = Builder::new()
            .worker_threads(1)
            .thread_stack_size(STACK)
            .build()
            .unwrap();
        let drops = Drops::new();
        limit_space(Some(STACK as u64 / 2));
        let token = drops.token();
        let job = runtime.spawn_blocking(move || drop(token));
        let error = runtime.block_on(job).unwrap_err();
        assert!(error.is_refused() && !error.is_cancelled() && !error.is_panic());
        assert_eq!(drops.count(), 1, "dropped, and not lost");
        assert!(std::error::Error::source(&error).is_some());
        assert!(error.to_string().contains("no thread"), "{error}");
        assert!(error.try_into_panic().is_err());
        assert_eq!(runtime.metrics().num_blocking_threads(), 0);
        limit_space(None);
        let (started, release) = (Gate::new(), Gate::new());
        let (begun, wait) = (started.clone(), release.clone());
        let first = runtime.spawn_blocking(move || {
            begun.open();
            wait.wait();
        });
        started.wait();
        limit_space(Some(STACK as u64 / 2));
        let second = runtime.spawn_blocking(|| 2);
        assert_eq!(runtime.metrics().blocking_queue_depth(), 1);
        assert_eq!(runtime.metrics().num_blocking_threads(), 1);
        release.open();
        assert_eq!(runtime.block_on(second).unwrap(), 2);
        runtime.block_on(first).unwrap();
    });
}

#[test]
fn spawn_blocking_is_cancelled_after_shutdown_and_panics_outside() {
    let _alarm = alarm();
    let stopped = runtime(1);
    let handle = stopped.handle().clone();
    drop(stopped);
    let drops = Drops::new();
    let token = drops.token();
    let job = handle.spawn_blocking(move || drop(token));
    assert_eq!(drops.count(), 1);
    assert!(job.is_finished());
    let _entered = handle.enter();
    for job in [job, spawn_blocking(|| ())] {
        let error = futures_lite::future::block_on(job).unwrap_err();
        assert!(error.is_cancelled());
    }
    let outside = thread::spawn(|| drop(spawn_blocking(|| ())));
    assert!(outside.join().is_err());
}
