//! Dropping a runtime leaves no thread, no descriptor and no memory behind, wherever it is dropped.
//!
//! The tests count resources of the process, so each has a process of its own.

use std::{
    future,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, alarm, eventually, fds, process::alone, runtime, threads,
};
use futures_lite::AsyncReadExt;
use tourbillon::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    time::sleep,
    timer::{Outcome, Status},
};

#[test]
fn a_dropped_runtime_leaves_no_thread_and_no_descriptor() {
    alone(|| {
        // Descriptors that the process opens once and keeps do not belong to the runtime.
        drop(runtime(1));
        let before = (threads(), fds());
        for workers in [1, 2, 5] {
            let runtime = Builder::new().worker_threads(workers).build().unwrap();
            assert_eq!(threads(), before.0 + workers);
            // Each worker has four descriptors. The two clocks for which workers do not wait have
            // one each.
            assert_eq!(fds() - before.1 - 2, 4 * workers);
            drop(runtime);
            eventually("nothing is left", || (threads(), fds()) == before);
        }
    });
}

#[test]
fn a_busy_runtime_leaves_no_thread_and_no_descriptor() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        for _ in 0..10 {
            let drops = Drops::new();
            let runtime = runtime(2);
            let mut made = 0;
            let mut token = || {
                made += 1;
                drops.token()
            };
            for _ in 0..50 {
                let token = token();
                runtime.spawn(async move {
                    let _token = token;
                    sleep(HOUR).await;
                });
            }
            for _ in 0..5 {
                let token = token();
                runtime.spawn(async move {
                    let _token = token;
                    loop {
                        tourbillon::task::yield_now().await;
                    }
                });
            }
            for _ in 0..20 {
                let token = token();
                runtime.spawn(async move {
                    let _token = token;
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let addr = listener.local_addr().unwrap();
                    let client = tourbillon::spawn(async move {
                        let mut stream = TcpStream::connect(addr).await?;
                        stream.read(&mut [0]).await
                    });
                    let (_accepted, _) = listener.accept().await.unwrap();
                    let _ = client.await;
                    future::pending::<()>().await;
                });
            }
            for i in 0..50 {
                let (once, again) = (token(), token());
                runtime
                    .handle()
                    .after(Duration::from_millis(i), move || drop(once));
                runtime
                    .handle()
                    .every(Duration::from_micros(100 + i), move || {
                        let _ = &again;
                    });
            }
            thread::sleep(Duration::from_millis(10));
            drop(runtime);
            assert_eq!(drops.count(), made);
            eventually("nothing is left", || (threads(), fds()) == before);
        }
    });
}

#[test]
fn two_hundred_runtimes_leave_as_much_as_one() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        for i in 0..200 {
            let runtime = runtime(1 + i % 3);
            match i % 4 {
                0 => {}
                1 => drop(runtime.handle().after(HOUR, || ())),
                2 => drop(runtime.spawn(future::pending::<()>())),
                _ => runtime.block_on(sleep(Duration::from_micros(10))),
            }
            match i % 3 {
                0 => drop(runtime),
                1 => assert!(runtime.shutdown_timeout(PATIENCE)),
                _ => runtime.shutdown_background(),
            }
        }
        eventually("the last have ended", || (threads(), fds()) == before);
    });
}

#[test]
fn shutdown_background_leaves_nothing_in_the_end() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let drops = Drops::new();
        let (started, release) = (Gate::new(), Gate::new());
        let runtime = runtime(2);
        {
            let (started, release) = (started.clone(), release.clone());
            runtime.handle().after(Duration::ZERO, move || {
                started.open();
                release.wait();
            });
        }
        let task = runtime.spawn(drops.pending());
        started.wait();
        // If this call waited, it would hang: the callback is released later.
        runtime.shutdown_background();
        assert!(
            !task.is_finished(),
            "the last worker to end drops the tasks"
        );
        release.open();
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
        assert_eq!(drops.count(), 1);
        eventually("all is gone", || (threads(), fds()) == before);
    });
}

#[test]
fn a_million_pending_timers_are_all_dropped() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(2);
        let drops = Drops::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for i in 0..500_000_u64 {
                        let token = drops.token();
                        runtime
                            .handle()
                            .after(HOUR + Duration::from_nanos(i * 7919), move || drop(token));
                    }
                });
            }
        });
        assert_eq!(drops.count(), 0);
        drop(runtime);
        assert_eq!(drops.count(), 1_000_000);
        eventually("nothing is left", || (threads(), fds()) == before);
    });
}

#[test]
fn shutdown_timeout_gives_up_on_a_blocked_callback() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(2);
        let drops = Drops::new();
        let (started, release) = (Gate::new(), Gate::new());
        {
            let (started, release) = (started.clone(), release.clone());
            runtime.handle().after(Duration::ZERO, move || {
                started.open();
                release.wait();
            });
        }
        for _ in 0..10 {
            let token = drops.token();
            runtime.handle().after(HOUR, move || drop(token));
            runtime.spawn(drops.pending());
        }
        let handle = runtime.handle().clone();
        started.wait();
        let start = Instant::now();
        assert!(!runtime.shutdown_timeout(Duration::from_millis(50)));
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(50));
        assert!(took < PATIENCE / 2, "it waits for what is stuck");
        // Meanwhile the runtime accepts work, and ends that work when its last worker ends.
        let token = drops.token();
        let late = handle.after(HOUR, move || drop(token));
        let token = drops.token();
        let task = handle.spawn(async move { drop(token) });
        release.open();
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
        eventually("all is dropped", || drops.count() == 22);
        eventually("it is over", || {
            late.status() == Status::Over(Outcome::Shutdown)
        });
        drop(late);
        eventually("all is gone", || (threads(), fds()) == before);
    });
}

#[test]
fn a_worker_can_shut_down_its_runtime() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        type End = fn(tourbillon::Runtime);
        let ends: [End; 3] = [
            |runtime| runtime.shutdown_background(),
            |runtime| drop(runtime),
            // The worker cannot wait for itself, and the answer says so.
            |runtime| assert!(!runtime.shutdown_timeout(PATIENCE)),
        ];
        for workers in [1, 2] {
            for end in ends {
                for by_task in [false, true] {
                    let runtime = runtime(workers);
                    let drops = Drops::new();
                    let token = drops.token();
                    runtime.handle().after(HOUR, move || drop(token));
                    let other = runtime.spawn(drops.pending());
                    let handle = runtime.handle().clone();
                    let token = drops.token();
                    if by_task {
                        handle.spawn(async move {
                            let _token = token;
                            end(runtime);
                        });
                    } else {
                        handle.after(Duration::ZERO, move || {
                            let _token = token;
                            end(runtime);
                        });
                    }
                    drop(handle);
                    let joined = futures_lite::future::block_on(other);
                    assert!(joined.unwrap_err().is_cancelled());
                    eventually("all is dropped", || drops.count() == 3);
                    eventually("all is gone", || (threads(), fds()) == before);
                }
            }
        }
    });
}

#[test]
fn a_runtime_can_be_dropped_on_a_worker_of_another() {
    alone(|| {
        let outer = runtime(1);
        let before = (threads(), fds());
        let inner = runtime(2);
        let drops = Drops::new();
        let task = inner.spawn(drops.pending());
        crate::common::on_worker(&outer, move || drop(inner));
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
        eventually("all is gone", || (threads(), fds()) == before);
        assert_eq!(drops.count(), 1);
        assert_eq!(outer.block_on(outer.spawn(async { 1 })).unwrap(), 1);
    });
}

#[test]
fn handles_that_outlive_the_runtime_do_not_keep_its_threads() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(2);
        let timer = runtime.handle().after(HOUR, || ());
        let task = runtime.spawn(future::pending::<()>());
        let handle = runtime.handle().clone();
        drop(runtime);
        assert_eq!(threads(), before.0);
        // The last handles release everything that a timer or a task keeps of its worker.
        drop((timer, task, handle));
        assert_eq!(fds(), before.1);
    });
}

#[test]
fn hooks_run_on_each_thread_at_its_start_and_its_end() {
    let _alarm = alarm();
    let names: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = |what: &'static str| {
        let names = names.clone();
        move || {
            let thread = thread::current();
            let name = thread.name().unwrap();
            names.lock().unwrap().push(format!("{what} {name}"));
        }
    };
    let runtime = Builder::new()
        .worker_threads(2)
        .thread_name_fn(|index| format!("hooked-{index}"))
        .on_thread_start(note("start"))
        .on_thread_stop(note("stop"))
        .build()
        .unwrap();
    runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
    drop(runtime);
    let mut names = names.lock().unwrap();
    names.sort();
    let expected = [
        "start hooked-0",
        "start hooked-1",
        "start tourbillon-blocking-0",
        "stop hooked-0",
        "stop hooked-1",
        "stop tourbillon-blocking-0",
    ];
    assert_eq!(*names, expected);
}
