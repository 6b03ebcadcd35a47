//! A panic in user code is reported and counted. The worker goes on and loses nothing else.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use crate::common::{
    Drops, HOUR, PATIENCE, alarm, eventually, on_worker,
    panics::{assert_alive, panics},
    process::alone,
    runtime,
};
use futures_lite::AsyncRead;
use tourbillon::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::yield_now,
    time::sleep,
    timer::{Cancel, Outcome, Status},
};

#[test]
fn a_panic_in_a_callback_is_counted_and_the_worker_goes_on() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let timers: Vec<_> = (0..5)
        .map(|i| {
            runtime.handle().after(Duration::from_micros(i * 100), || {
                panic!("a callback panics")
            })
        })
        .collect();
    for timer in &timers {
        eventually("it is over", || {
            timer.status() == Status::Over(Outcome::Fired)
        });
    }
    eventually("all are counted", || panics(&runtime) == 5);
    let total = runtime.metrics().total();
    assert_eq!((total.fired(), total.callbacks()), (5, 5));
    assert_alive(&runtime);
}

#[test]
fn a_panicking_callback_loses_no_callback_queued_behind_it() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let ran = Arc::new(AtomicUsize::new(0));
    {
        let ran = ran.clone();
        on_worker(&runtime, move || {
            let past = Instant::now();
            for i in 0..10 {
                let ran = ran.clone();
                // All of them come due in one batch.
                tourbillon::at(past, move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                    assert!(i % 2 == 0, "every other panics");
                });
            }
        });
    }
    eventually("all ran", || ran.load(Ordering::SeqCst) == 10);
    eventually("half are counted", || panics(&runtime) == 5);
}

#[test]
fn a_recurring_callback_that_panics_runs_again() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = mpsc::channel();
    let drops = Drops::new();
    let token = drops.token();
    let timer = runtime.handle().every(Duration::from_millis(1), move || {
        let _ = &token;
        let _ = sender.send(());
        panic!("a recurring callback panics");
    });
    for _ in 0..4 {
        receiver.recv_timeout(PATIENCE).expect("it runs again");
    }
    assert_eq!(drops.count(), 0);
    assert!(matches!(
        timer.cancel(),
        Cancel::Cancelled | Cancel::AfterRun
    ));
    eventually("it is dropped", || drops.count() == 1);
    eventually("all are counted", || {
        let total = runtime.metrics().total();
        total.panics() >= 4 && total.panics() == total.callbacks()
    });
}

#[test]
fn a_panic_in_a_task_is_counted_and_the_worker_goes_on() {
    let _alarm = alarm();
    let runtime = runtime(1);
    // One task is joined, and one is detached.
    let joined = runtime.spawn(async {
        yield_now().await;
        panic!("a task panics")
    });
    let error = runtime.block_on(joined).map(|(): ()| ()).unwrap_err();
    assert!(error.is_panic());
    drop(runtime.spawn(async { panic!("a detached task panics") }));
    eventually("both are counted", || panics(&runtime) == 2);
    assert_alive(&runtime);
}

#[test]
fn a_panic_in_a_callback_restores_the_thread_context() {
    let _alarm = alarm();
    let (runtime, other) = (runtime(1), runtime(1));
    let entered = other.handle().clone();
    runtime.handle().after(Duration::ZERO, move || {
        let _entered = entered.enter();
        panic!("with another runtime entered");
    });
    eventually("it is counted", || panics(&runtime) == 1);
    drop(other);
    // If `other` were still entered, this timer would be armed on a runtime that is gone.
    let status = on_worker(&runtime, || tourbillon::after(HOUR, || ()).status());
    assert_eq!(status, Status::Pending);
}

#[test]
fn panicking_hooks_are_counted_and_the_worker_goes_on() {
    alone(|| {
        let before = crate::common::threads();
        let stops = Arc::new(AtomicUsize::new(0));
        let stopped = stops.clone();
        let runtime = Builder::new()
            .worker_threads(2)
            .on_thread_start(|| panic!("the start hook panics"))
            .on_thread_stop(move || {
                stopped.fetch_add(1, Ordering::SeqCst);
                panic!("the stop hook panics");
            })
            .build()
            .unwrap();
        eventually("both are counted", || panics(&runtime) == 2);
        assert_alive(&runtime);
        drop(runtime);
        assert_eq!(stops.load(Ordering::SeqCst), 2);
        assert_eq!(crate::common::threads(), before);
    });
}

#[test]
fn a_panicking_thread_name_function_does_not_hang_the_build() {
    alone(|| {
        let before = (crate::common::threads(), crate::common::fds());
        for fails in 0..3 {
            let mut build = Builder::new();
            build.worker_threads(3).thread_name_fn(move |index| {
                assert_ne!(index, fails, "no name for this one");
                format!("named-{index}")
            });
            assert!(catch_unwind(AssertUnwindSafe(|| build.build())).is_err());
        }
        eventually("nothing is left", || {
            (crate::common::threads(), crate::common::fds()) == before
        });
    });
}

/// A waker that panics, as no waker should.
struct BadWaker(AtomicUsize);

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker panics");
    }
}

fn bad_waker() -> (Arc<BadWaker>, Waker) {
    let bad = Arc::new(BadWaker(AtomicUsize::new(0)));
    (bad.clone(), Waker::from(bad))
}

/// Starts a read that waits with `waker`, which panics. Returns the stream and its peer.
async fn badly_waiting_read(waker: &Waker) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let (peer, _) = listener.accept().await.unwrap();
    let mut cx = Context::from_waker(waker);
    let read = Pin::new(&mut stream).poll_read(&mut cx, &mut [0]);
    assert!(read.is_pending());
    (stream, peer)
}

#[test]
fn a_panicking_waker_does_not_stop_other_wakes() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (bad, waker) = bad_waker();
    let _entered = runtime.enter();
    // Many sleeps that come due together, one of them with a waker that panics.
    let at = tourbillon::time::Instant::now() + Duration::from_millis(20);
    let sleeping: Vec<_> = (0..20)
        .map(|_| runtime.spawn(tourbillon::time::sleep_until(at)))
        .collect();
    let mut sleep = Box::pin(tourbillon::time::sleep_until(at));
    let pending = sleep.as_mut().poll(&mut Context::from_waker(&waker));
    for task in sleeping {
        runtime.block_on(task).unwrap();
    }
    if pending.is_pending() {
        eventually("the bad one was woken", || {
            bad.0.load(Ordering::SeqCst) == 1
        });
        eventually("it is counted", || panics(&runtime) == 1);
    }
    // The waker of a socket panics.
    let (bad, waker) = bad_waker();
    let (stream, peer) = runtime.block_on(badly_waiting_read(&waker));
    drop(peer);
    eventually("the bad one was woken", || {
        bad.0.load(Ordering::SeqCst) == 1
    });
    drop(stream);
    assert_alive(&runtime);
}

#[test]
fn a_panicking_waker_does_not_hang_shutdown() {
    alone(|| {
        let before = crate::common::threads();
        let runtime = runtime(2);
        let drops = Drops::new();
        let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
        let mut bad_ones = Vec::new();
        for _ in 0..3 {
            let (bad, waker) = bad_waker();
            let (stream, peer) = runtime.block_on(badly_waiting_read(&waker));
            held.push(Box::new((stream, peer)));
            bad_ones.push(bad);
            let (bad, waker) = bad_waker();
            let mut sleep = Box::pin(sleep(HOUR));
            {
                let _entered = runtime.enter();
                let mut cx = Context::from_waker(&waker);
                assert!(sleep.as_mut().poll(&mut cx).is_pending());
            }
            held.push(Box::new(sleep));
            bad_ones.push(bad);
            runtime.spawn(drops.pending());
            let token = drops.token();
            runtime.handle().after(HOUR, move || drop(token));
        }
        drop(runtime);
        assert_eq!(drops.count(), 6);
        assert_eq!(crate::common::threads(), before);
        for bad in bad_ones {
            assert_eq!(bad.0.load(Ordering::SeqCst), 1, "each was woken");
        }
    });
}
