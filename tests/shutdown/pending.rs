//! Dropping a runtime ends what waits in it: timers, tasks, sleeps and sockets.

use std::{
    future::{self, Future},
    io,
    sync::{Arc, Mutex, Weak, mpsc},
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use crate::common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, runtime};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    Handle,
    net::{TcpListener, TcpStream},
    time::{interval, sleep},
    timer::{Cancel, Outcome, Reset, Status},
};

#[test]
fn pending_callbacks_are_dropped_and_do_not_run() {
    let _alarm = alarm();
    let drops = Drops::new();
    let runtime = runtime(2);
    let mut timers = Vec::new();
    for _ in 0..100 {
        let token = drops.token();
        timers.push(runtime.handle().after(HOUR, move || {
            let _token = token;
            panic!("it is not due");
        }));
        let token = drops.token();
        timers.push(runtime.handle().every(HOUR, move || {
            let _ = &token;
            panic!("it is not due");
        }));
        let token = drops.token();
        let handle = runtime.handle().clone();
        crate::common::on_worker(&runtime, move || {
            // A worker arms this timer, so that the timer is in the worker's store and not in an
            // inbox.
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
        assert_eq!(timer.reset_after(HOUR), Reset::TooLate);
        assert_eq!(timer.refresh(), Reset::TooLate);
        assert_eq!(timer.reset_from_start(HOUR), Reset::TooLate);
        assert_eq!(timer.reset_at(Instant::now()), Reset::TooLate);
    }
}

#[test]
fn queued_timers_are_ended() {
    let _alarm = alarm();
    let drops = Drops::new();
    let runtime = runtime(1);
    let (started, release) = (Gate::new(), Gate::new());
    let timers = {
        let (started, release, drops) = (started.clone(), release.clone(), drops.clone());
        crate::common::on_worker(&runtime, move || {
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
    // One timer is moved, so that the queue holds a timer that is no longer due.
    assert_eq!(timers[7].reset_after(HOUR), Reset::Pending);
    let dropper = thread::spawn(move || drop(runtime));
    // The shutdown tells the worker to stop, and the worker leaves after its present job.
    thread::sleep(Duration::from_millis(20));
    release.open();
    dropper.join().unwrap();
    assert_eq!(drops.count(), 20);
    for timer in timers {
        assert!(matches!(timer.status(), Status::Over(_)));
    }
}

/// Spawns tasks that wait for everything that tasks can wait for, each with a token.
fn waiting_tasks(handle: &Handle, drops: &Drops) -> Vec<tourbillon::JoinHandle<()>> {
    let mut tasks = Vec::new();
    let token = drops.token();
    tasks.push(handle.spawn(async move {
        let _token = token;
        sleep(HOUR).await;
        // The shutdown ends the sleep, which would let the task go on. But the task is not polled
        // any more.
        panic!("an hour has not passed");
    }));
    tasks.push(handle.spawn(drops.pending()));
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
        // The peer does not read, so the buffers fill up.
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
fn a_task_that_ticks_in_a_loop_is_dropped() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, ticked) = mpsc::channel();
    let task = runtime.spawn(async move {
        let mut interval = interval(Duration::from_millis(1));
        interval.tick().await;
        sender.send(()).unwrap();
        // The shutdown begins during this sleep. From then on, each tick completes at once.
        thread::sleep(Duration::from_millis(50));
        loop {
            interval.tick().await;
        }
    });
    ticked.recv_timeout(PATIENCE).unwrap();
    drop(runtime);
    assert!(task.is_finished());
}

#[test]
fn pending_tasks_are_dropped_and_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.extend(waiting_tasks(runtime.handle(), &drops));
    }
    // Most tasks reach their wait in this time. The test is valid even if some do not.
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
fn an_unclaimed_result_survives_shutdown() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let task = runtime.spawn(async { 7 });
    eventually("it has ended", || task.is_finished());
    drop(runtime);
    assert_eq!(futures_lite::future::block_on(task).unwrap(), 7);
}

#[test]
fn a_waiter_in_another_runtime_gets_cancelled() {
    let _alarm = alarm();
    let (doomed, other) = (runtime(1), runtime(1));
    let task = doomed.spawn(future::pending::<()>());
    let waiter = other.spawn(async move { task.await.unwrap_err().is_cancelled() });
    thread::sleep(Duration::from_millis(5));
    drop(doomed);
    assert!(other.block_on(waiter).unwrap());
}

#[test]
fn shutdown_timeout_returns_true_if_all_ended_in_time() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let _tasks = waiting_tasks(runtime.handle(), &drops);
    assert!(runtime.shutdown_timeout(PATIENCE));
    assert_eq!(drops.count(), 8);
    assert!(
        crate::common::runtime(1).shutdown_timeout(Duration::MAX),
        "no moment is that far"
    );
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
    let timer = runtime.handle().after(HOUR, move || {
        let _held = (token, handle, inner);
    });
    *own.lock().unwrap() = Some(timer);
    drop(own);
    drop(runtime);
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_sleep_polled_elsewhere_ends_with_its_runtime() {
    let _alarm = alarm();
    let (doomed, other) = (runtime(1), runtime(1));
    let mut sleep = Box::pin(sleep(HOUR));
    // The first poll determines on which runtime the sleep waits.
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
fn sockets_of_an_ended_runtime_return_errors() {
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
    // Some operations wait when the runtime ends, and some begin later.
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
