//! Dropping a runtime leaves no thread, no descriptor and no memory behind, and ends all that waited.
//!
//! What is counted here is the process's: such tests have a process each.

mod common;

use std::{
    future::{self, Future},
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, fds, isolated, runtime, threads};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    ArmError, Cancel, Handle, Reset, Status,
    net::{TcpListener, TcpStream},
    runtime::{Builder, PreciseWait},
    time::{interval, sleep},
    timer::Outcome,
};

/// A runtime that has been shut down, and a handle to it.
fn stale() -> Handle {
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    drop(runtime);
    handle
}

#[test]
fn a_dropped_runtime_leaves_no_thread_and_no_descriptor() {
    isolated(
        "a_dropped_runtime_leaves_no_thread_and_no_descriptor",
        || {
            // What the process opens once for good is not the runtime's to close.
            drop(runtime(1));
            let before = (threads(), fds());
            for wait in [PreciseWait::Auto, PreciseWait::Timerfd] {
                for workers in [1, 2, 5] {
                    let runtime = Builder::new()
                        .worker_threads(workers)
                        .precise_wait(wait)
                        .build()
                        .unwrap();
                    assert_eq!(threads(), before.0 + workers);
                    let each = match wait {
                        PreciseWait::Timerfd => 3,
                        _ => 2,
                    };
                    // Fewer than three on a kernel that has `epoll_pwait2`, three on one that has not.
                    let opened = fds() - before.1;
                    assert!(opened == each * workers || opened == 3 * workers);
                    drop(runtime);
                    assert_eq!((threads(), fds()), before);
                }
            }
        },
    );
}

#[test]
fn a_runtime_in_the_midst_of_everything_leaves_nothing_either() {
    isolated(
        "a_runtime_in_the_midst_of_everything_leaves_nothing_either",
        || {
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
                    runtime.after(Duration::from_millis(i), move || drop(once));
                    runtime.every(Duration::from_micros(100 + i), move || {
                        let _ = &again;
                    });
                }
                thread::sleep(Duration::from_millis(10));
                drop(runtime);
                assert_eq!(drops.count(), made);
                assert_eq!((threads(), fds()), before);
            }
        },
    );
}

#[test]
fn two_hundred_runtimes_leave_as_much_as_one() {
    isolated("two_hundred_runtimes_leave_as_much_as_one", || {
        drop(runtime(1));
        let before = (threads(), fds());
        for i in 0..200 {
            let runtime = runtime(1 + i % 3);
            match i % 4 {
                0 => {}
                1 => drop(runtime.after(HOUR, || ())),
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
fn shut_down_in_the_background_it_leaves_nothing_in_the_end() {
    isolated(
        "shut_down_in_the_background_it_leaves_nothing_in_the_end",
        || {
            drop(runtime(1));
            let before = (threads(), fds());
            let drops = Drops::new();
            let (started, release) = (Gate::new(), Gate::new());
            let runtime = runtime(2);
            {
                let (started, release) = (started.clone(), release.clone());
                runtime.after(Duration::ZERO, move || {
                    started.open();
                    release.wait();
                });
            }
            let token = drops.token();
            let task = runtime.spawn(async move {
                let _token = token;
                future::pending::<()>().await;
            });
            started.wait();
            // Would hang if it waited: the callback is let on later.
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
        },
    );
}

#[test]
fn a_million_pending_timers_are_all_dropped() {
    isolated("a_million_pending_timers_are_all_dropped", || {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(2);
        let drops = Drops::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for i in 0..500_000_u64 {
                        let token = drops.token();
                        runtime.after(HOUR + Duration::from_nanos(i * 7919), move || drop(token));
                    }
                });
            }
        });
        assert_eq!(drops.count(), 0);
        drop(runtime);
        assert_eq!(drops.count(), 1_000_000);
        assert_eq!((threads(), fds()), before);
    });
}

#[test]
fn pending_callbacks_are_dropped_and_do_not_run() {
    let _alarm = alarm();
    let drops = Drops::new();
    let runtime = runtime(2);
    let mut timers = Vec::new();
    for _ in 0..100 {
        let token = drops.token();
        timers.push(runtime.after(HOUR, move || {
            let _token = token;
            panic!("it is not due");
        }));
        let token = drops.token();
        timers.push(runtime.every(HOUR, move || {
            let _ = &token;
            panic!("it is not due");
        }));
        let token = drops.token();
        let handle = runtime.handle().clone();
        common::on_worker(&runtime, move || {
            // By a worker, so that they stand in its store and in no inbox.
            handle.after(HOUR, move || {
                let _token = token;
                panic!("it is not due");
            });
        });
    }
    drop(runtime);
    assert_eq!(drops.count(), 300);
    for timer in &timers {
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!(timer.deadline(), None);
        assert!(!timer.is_pending());
        assert_eq!(timer.cancel(), Cancel::Over);
        assert_eq!(timer.reset(HOUR), Reset::TooLate);
        assert_eq!(timer.refresh(), Reset::TooLate);
        assert_eq!(timer.reset_from_start(HOUR), Reset::TooLate);
        assert_eq!(timer.reset_at(Instant::now()), Reset::TooLate);
    }
}

#[test]
fn timers_in_the_queue_of_a_worker_are_ended_too() {
    let _alarm = alarm();
    let drops = Drops::new();
    let runtime = runtime(1);
    let (started, release) = (Gate::new(), Gate::new());
    let timers = {
        let (started, release, drops) = (started.clone(), release.clone(), drops.clone());
        common::on_worker(&runtime, move || {
            let past = Instant::now();
            tourbillon::at(past, move || {
                started.open();
                release.wait();
            });
            let queued = (0..20).map(|_| {
                let token = drops.token();
                tourbillon::at(past + Duration::from_nanos(1), move || drop(token))
            });
            queued.collect::<Vec<_>>()
        })
    };
    started.wait();
    // One of them is moved, so that the queue holds what is not due any more.
    assert_eq!(timers[7].reset(HOUR), Reset::Waiting);
    let dropper = thread::spawn(move || drop(runtime));
    // Told to stop, the worker leaves after what it is at.
    thread::sleep(Duration::from_millis(20));
    release.open();
    dropper.join().unwrap();
    assert_eq!(drops.count(), 20);
    for timer in timers {
        assert!(matches!(timer.status(), Status::Over(_)));
    }
}

#[test]
fn a_stale_handle_refuses_in_every_way() {
    let _alarm = alarm();
    let handle = stale();
    let drops = Drops::new();
    let token = drops.token();
    let timer = handle.after(Duration::ZERO, move || drop(token));
    assert_eq!(drops.count(), 1, "the callback is dropped");
    for timer in [
        timer,
        handle.at(Instant::now(), || unreachable!()),
        handle.every(HOUR, || unreachable!()),
    ] {
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert!(!timer.is_pending());
        assert_eq!(timer.deadline(), None);
        assert_eq!(timer.cancel(), Cancel::Over);
        assert_eq!(timer.reset(HOUR), Reset::TooLate);
        assert_eq!(timer.refresh(), Reset::TooLate);
        drop(timer.cancel_on_drop());
    }
    let shutdown = Some(ArmError::Shutdown);
    assert_eq!(handle.try_after(HOUR, || ()).err(), shutdown);
    assert_eq!(handle.try_at(Instant::now(), || ()).err(), shutdown);
    assert_eq!(handle.try_every(HOUR, || ()).err(), shutdown);
    {
        let _entered = handle.enter();
        assert!(Handle::try_current().is_ok());
        assert_eq!(
            tourbillon::after(HOUR, || ()).status(),
            Status::Over(Outcome::Shutdown)
        );
        assert_eq!(tourbillon::try_after(HOUR, || ()).err(), shutdown);
    }

    let token = drops.token();
    let task = handle.spawn(async move { drop(token) });
    assert!(task.is_finished());
    assert_eq!(drops.count(), 2, "the future is dropped");
    assert!(handle.block_on(task).unwrap_err().is_cancelled());

    assert_eq!(handle.metrics().num_workers(), 0);
    assert_eq!(handle.block_on(async { 5 }), 5);
    // A sleep ends at once, and says that it has not elapsed.
    handle.block_on(async {
        let mut sleep = std::pin::pin!(sleep(HOUR));
        sleep.as_mut().await;
        assert!(!sleep.is_elapsed());
    });
    let error = handle
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap_err();
    assert_eq!(
        error.get_ref().and_then(|error| error.downcast_ref()),
        Some(&ArmError::Shutdown)
    );
}

#[test]
fn a_full_runtime_that_is_shut_down_says_shutdown() {
    let runtime = Builder::new()
        .worker_threads(1)
        .max_timers(1)
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    runtime.after(HOUR, || ());
    drop(runtime);
    assert_eq!(
        handle.try_after(HOUR, || ()).err(),
        Some(ArmError::Shutdown)
    );
}

/// Tasks that wait for all that tasks may wait for, each with a token.
fn waiting_tasks(handle: &Handle, drops: &Drops) -> Vec<tourbillon::JoinHandle<()>> {
    let mut tasks = Vec::new();
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        sleep(HOUR).await;
        // A sleep that a shutdown ends would let the task go on; but it is not polled any more.
        panic!("an hour has not passed");
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        future::pending::<()>().await;
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _ = listener.accept().await;
        panic!("nobody connects");
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let _ = stream.read(&mut [0]).await;
        panic!("nobody answers");
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        // Nobody reads: at some time there is no more room.
        while stream.write(&[0; 4096]).await.is_ok() {}
        panic!("nobody closes it");
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        let mut interval = interval(HOUR);
        loop {
            interval.tick().await;
        }
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        let inner = tourbillon::spawn(future::pending::<()>());
        let _ = inner.await;
        panic!("it never ends");
    }));
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        loop {
            tourbillon::task::yield_now().await;
        }
    }));
    tasks
}

#[test]
fn tasks_that_wait_are_dropped_and_their_handles_say_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.extend(waiting_tasks(runtime.handle(), &drops));
    }
    // They get to where they wait; it is as well if not all do.
    thread::sleep(Duration::from_millis(50));
    assert!(tasks.iter().all(|task| !task.is_finished()));
    drop(runtime);
    assert_eq!(drops.count(), tasks.len());
    for task in tasks {
        assert!(task.is_finished());
        let error = futures_lite::future::block_on(task).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
}

#[test]
fn a_result_that_nobody_took_before_the_shutdown_is_still_there() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let task = runtime.spawn(async { 7 });
    eventually("it has ended", || task.is_finished());
    drop(runtime);
    assert_eq!(futures_lite::future::block_on(task).unwrap(), 7);
}

#[test]
fn who_waits_for_a_task_elsewhere_is_told_that_it_was_cancelled() {
    let _alarm = alarm();
    let (doomed, other) = (runtime(1), runtime(1));
    let task = doomed.spawn(future::pending::<()>());
    let waiter = other.spawn(async move { task.await.unwrap_err().is_cancelled() });
    thread::sleep(Duration::from_millis(5));
    drop(doomed);
    assert!(other.block_on(waiter).unwrap());
}

#[test]
fn shutdown_gives_up_on_a_stuck_callback_in_time_and_frees_all_later() {
    isolated(
        "shutdown_gives_up_on_a_stuck_callback_in_time_and_frees_all_later",
        || {
            drop(runtime(1));
            let before = (threads(), fds());
            let runtime = runtime(2);
            let drops = Drops::new();
            let (started, release) = (Gate::new(), Gate::new());
            {
                let (started, release) = (started.clone(), release.clone());
                runtime.after(Duration::ZERO, move || {
                    started.open();
                    release.wait();
                });
            }
            for _ in 0..10 {
                let token = drops.token();
                runtime.after(HOUR, move || drop(token));
                let token = drops.token();
                runtime.spawn(async move {
                    let _token = token;
                    future::pending::<()>().await;
                });
            }
            let handle = runtime.handle().clone();
            started.wait();
            let start = Instant::now();
            assert!(!runtime.shutdown_timeout(Duration::from_millis(50)));
            let took = start.elapsed();
            assert!(took >= Duration::from_millis(50));
            assert!(took < PATIENCE / 2, "it waits for what is stuck");
            // In between it takes work, and ends it when it ends.
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
        },
    );
}

#[test]
fn a_shutdown_with_time_enough_says_so() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let _tasks = waiting_tasks(runtime.handle(), &drops);
    assert!(runtime.shutdown_timeout(PATIENCE));
    assert_eq!(drops.count(), 8);
    assert!(
        common::runtime(1).shutdown_timeout(Duration::MAX),
        "no moment is that far"
    );
}

#[test]
fn a_worker_may_shut_down_its_runtime() {
    isolated("a_worker_may_shut_down_its_runtime", || {
        drop(runtime(1));
        let before = (threads(), fds());
        type End = fn(tourbillon::Runtime);
        let ends: [End; 3] = [
            |runtime| runtime.shutdown_background(),
            |runtime| drop(runtime),
            // It cannot wait for itself, and says that it did not.
            |runtime| assert!(!runtime.shutdown_timeout(PATIENCE)),
        ];
        for workers in [1, 2] {
            for end in ends {
                for by_task in [false, true] {
                    let runtime = runtime(workers);
                    let drops = Drops::new();
                    let token = drops.token();
                    runtime.after(HOUR, move || drop(token));
                    let token = drops.token();
                    let other = runtime.spawn(async move {
                        let _token = token;
                        future::pending::<()>().await;
                    });
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
fn a_runtime_may_be_dropped_on_a_worker_of_another() {
    isolated("a_runtime_may_be_dropped_on_a_worker_of_another", || {
        let outer = runtime(1);
        let before = (threads(), fds());
        let inner = runtime(2);
        let drops = Drops::new();
        let token = drops.token();
        let task = inner.spawn(async move {
            let _token = token;
            future::pending::<()>().await;
        });
        common::on_worker(&outer, move || drop(inner));
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
    isolated(
        "handles_that_outlive_the_runtime_do_not_keep_its_threads",
        || {
            drop(runtime(1));
            let before = (threads(), fds());
            let runtime = runtime(2);
            let timer = runtime.after(HOUR, || ());
            let task = runtime.spawn(future::pending::<()>());
            let handle = runtime.handle().clone();
            drop(runtime);
            assert_eq!(threads(), before.0);
            // Whatever a timer or a task keeps of its worker goes with it.
            drop((timer, task, handle));
            assert_eq!(fds(), before.1);
        },
    );
}

/// Leaves its waker with the test, and never ends.
struct LeaveWaker(Arc<Mutex<Vec<Waker>>>, #[expect(dead_code)] common::Token);

impl Future for LeaveWaker {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.lock().unwrap().push(cx.waker().clone());
        Poll::Pending
    }
}

#[test]
fn wakers_may_outlive_the_runtime() {
    isolated("wakers_may_outlive_the_runtime", || {
        drop(runtime(1));
        let before = (threads(), fds());
        let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let drops = Drops::new();
        let runtime = runtime(2);
        for _ in 0..50 {
            runtime.spawn(LeaveWaker(wakers.clone(), drops.token()));
        }
        eventually("all were polled", || wakers.lock().unwrap().len() == 50);
        drop(runtime);
        assert_eq!(drops.count(), 50);
        for waker in wakers.lock().unwrap().drain(..) {
            let clone = waker.clone();
            waker.wake_by_ref();
            waker.wake();
            clone.wake();
        }
        assert_eq!((threads(), fds()), before);
    });
}

#[test]
fn tasks_woken_from_outside_while_the_runtime_ends_are_all_dropped() {
    let _alarm = alarm();
    for _ in 0..50 {
        let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let drops = Drops::new();
        let runtime = runtime(2);
        for _ in 0..20 {
            runtime.spawn(LeaveWaker(wakers.clone(), drops.token()));
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let woken = std::mem::take(&mut *wakers.lock().unwrap());
                    woken.into_iter().for_each(Waker::wake);
                }
            });
            thread::sleep(Duration::from_micros(200));
            drop(runtime);
            stop.store(true, Ordering::SeqCst);
        });
        assert_eq!(drops.count(), 20);
    }
}

#[test]
fn what_is_spawned_and_armed_while_the_runtime_ends_is_all_ended() {
    let _alarm = alarm();
    for round in 0..50 {
        let runtime = runtime(2);
        let drops = Drops::new();
        let made = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                let handle = runtime.handle().clone();
                let (drops, made, stop) = (&drops, &made, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        made.fetch_add(2, Ordering::SeqCst);
                        let token = drops.token();
                        handle.spawn(async move {
                            let _token = token;
                            sleep(HOUR).await;
                        });
                        let token = drops.token();
                        handle.after(HOUR, move || drop(token));
                    }
                });
            }
            thread::sleep(Duration::from_micros(100 * (round % 5)));
            drop(runtime);
            stop.store(true, Ordering::SeqCst);
        });
        assert_eq!(drops.count(), made.load(Ordering::SeqCst));
    }
}

/// Does as it is told when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn what_destructors_spawn_and_arm_at_the_end_is_ended_too() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let drops = Drops::new();
        let handle = runtime.handle().clone();
        let again = |drops: &Drops| {
            let (handle, drops) = (handle.clone(), drops.clone());
            OnDrop(move || {
                let token = drops.token();
                handle.after(Duration::ZERO, move || drop(token));
                let token = drops.token();
                drop(handle.spawn(async move {
                    let _token = token;
                    future::pending::<()>().await;
                }));
            })
        };
        let of_task = again(&drops);
        let task = runtime.spawn(async move {
            let _of_task = of_task;
            future::pending::<()>().await;
        });
        let of_timer = again(&drops);
        runtime.after(HOUR, move || drop(of_timer));
        eventually("the task waits", || runtime.metrics().total().polls >= 1);
        drop(runtime);
        assert_eq!(drops.count(), 4);
        assert!(task.is_finished());
    }
}

#[test]
fn tasks_that_wait_for_each_other_in_a_ring_are_freed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let mut weak: Vec<Weak<()>> = Vec::new();
    let (give, take) = mpsc::channel::<tourbillon::JoinHandle<()>>();
    let (take, mut last) = (Arc::new(Mutex::new(take)), None);
    for i in 0..10 {
        let alive = Arc::new(());
        weak.push(Arc::downgrade(&alive));
        let (token, take) = (drops.token(), take.clone());
        let before = last.take();
        last = Some(runtime.spawn(async move {
            let _held = (token, alive);
            // The first waits for the last, all others for the one before.
            let other = match before {
                Some(before) => before,
                None => loop {
                    let last = take.lock().unwrap().try_recv();
                    match last {
                        Ok(last) => break last,
                        Err(_) => tourbillon::task::yield_now().await,
                    }
                },
            };
            assert!(i < 10);
            let _ = other.await;
        }));
    }
    give.send(last.unwrap()).unwrap();
    thread::sleep(Duration::from_millis(5));
    drop(runtime);
    assert_eq!(drops.count(), 10);
    assert!(weak.iter().all(|weak| weak.strong_count() == 0));
}

#[test]
fn a_timer_that_holds_its_own_handle_and_runtime_handle_is_freed() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let (token, handle) = (drops.token(), runtime.handle().clone());
    let own: Arc<Mutex<Option<tourbillon::Timer>>> = Arc::default();
    let inner = own.clone();
    let timer = runtime.after(HOUR, move || {
        let _held = (token, handle, inner);
    });
    *own.lock().unwrap() = Some(timer);
    drop(own);
    drop(runtime);
    assert_eq!(drops.count(), 1);
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
    drop(runtime);
    let mut names = names.lock().unwrap();
    names.sort();
    let expected = [
        "start hooked-0",
        "start hooked-1",
        "stop hooked-0",
        "stop hooked-1",
    ];
    assert_eq!(*names, expected);
}

#[test]
fn a_sleep_polled_elsewhere_ends_when_its_runtime_does() {
    let _alarm = alarm();
    let (doomed, other) = (runtime(1), runtime(1));
    let mut sleep = Box::pin(sleep(HOUR));
    // The first poll decides where it waits.
    doomed.block_on(future::poll_fn(|cx| {
        assert!(sleep.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    let waiter = other.spawn(async move {
        sleep.as_mut().await;
        sleep.is_elapsed()
    });
    thread::sleep(Duration::from_millis(5));
    drop(doomed);
    assert!(!other.block_on(waiter).unwrap());
}

#[test]
fn sockets_of_a_runtime_that_ended_give_errors() {
    let _alarm = alarm();
    let (doomed, other) = (runtime(1), runtime(1));
    let (listener, stream, _peer) = doomed.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let stream = TcpStream::connect(addr).await.unwrap();
        let (peer, _) = listener.accept().await.unwrap();
        (listener, stream, peer)
    });
    let (mut read, mut write) = stream.into_split();
    // Some wait when it ends, some come later.
    let reading = other.spawn(async move {
        let first: io::Result<usize> = read.read(&mut [0]).await;
        let second = read.read(&mut [0]).await;
        (first.is_err(), second.is_err())
    });
    let accepting = other.spawn(async move { listener.accept().await.is_err() });
    thread::sleep(Duration::from_millis(5));
    drop(doomed);
    assert_eq!(other.block_on(reading).unwrap(), (true, true));
    assert!(other.block_on(accepting).unwrap());
    assert!(other.block_on(write.write(b"x")).is_err());
}
