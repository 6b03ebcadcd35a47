//! Calls during and after a shutdown are refused or ended. Nothing is left over.

use std::{
    future::{self, Future},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use crate::common::{Drops, HOUR, alarm, eventually, fds, process::alone, runtime, threads};
use tourbillon::{ArmError, Handle, net::TcpListener, runtime::is_rt_shutdown_err, time::sleep};

/// A runtime that has been shut down, and a handle to it.
fn stale() -> Handle {
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    drop(runtime);
    handle
}

#[test]
fn every_call_on_a_stale_handle_is_refused() {
    let _alarm = alarm();
    let handle = stale();
    assert!(Handle::try_current().is_err());
    {
        let _entered = handle.enter();
        assert!(Handle::try_current().is_ok());
    }
    // `tests/timer/arming.rs` has the timers.
    drop(handle.after(HOUR, || ()).cancel_on_drop());
    let drops = Drops::new();
    let token = drops.token();
    let task = handle.spawn(async move { drop(token) });
    assert!(task.is_finished());
    assert_eq!(drops.count(), 1, "the future is dropped");
    assert!(handle.block_on(task).unwrap_err().is_cancelled());

    assert_eq!(handle.metrics().num_workers(), 0);
    assert_eq!(handle.block_on(async { 5 }), 5);
    // A sleep ends immediately, and reports that it has not elapsed.
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
    assert!(is_rt_shutdown_err(&error));
}

#[test]
fn errors_of_a_shutdown_are_told_from_others() {
    let _alarm = alarm();
    let (ending, other) = (runtime(1), runtime(1));
    let listener = ending.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    drop(ending);
    let error = other.block_on(listener.accept()).unwrap_err();
    assert!(is_rt_shutdown_err(&error));
    assert_eq!(error.kind(), std::io::ErrorKind::Other);
    assert!(error.to_string().contains("has been shut down"));
    // Neither an error of the system nor that of a thread outside of all runtimes is a shutdown
    // error.
    let taken = listener.local_addr().unwrap();
    let taken = other.block_on(TcpListener::bind(taken)).unwrap_err();
    assert!(!is_rt_shutdown_err(&taken));
    let nowhere = futures_lite::future::block_on(TcpListener::bind("127.0.0.1:0"));
    assert!(!is_rt_shutdown_err(&nowhere.unwrap_err()));
}

/// A future that leaves its waker with the test, and never completes.
struct LeaveWaker(
    Arc<Mutex<Vec<Waker>>>,
    #[expect(dead_code)] crate::common::Token,
);

impl Future for LeaveWaker {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.lock().unwrap().push(cx.waker().clone());
        Poll::Pending
    }
}

#[test]
fn wakers_can_outlive_the_runtime() {
    alone(|| {
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
        eventually("nothing is left", || (threads(), fds()) == before);
    });
}

#[test]
fn tasks_woken_during_shutdown_are_all_dropped() {
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
fn tasks_and_timers_created_during_shutdown_are_ended() {
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

/// Calls a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn tasks_and_timers_created_by_destructors_are_ended() {
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
                drop(handle.spawn(drops.pending()));
            })
        };
        let of_task = again(&drops);
        let task = runtime.spawn(async move {
            let _of_task = of_task;
            future::pending::<()>().await;
        });
        let of_timer = again(&drops);
        runtime.handle().after(HOUR, move || drop(of_timer));
        eventually("the task waits", || runtime.metrics().total().polls() >= 1);
        drop(runtime);
        assert_eq!(drops.count(), 4);
        assert!(task.is_finished());
    }
}

#[test]
fn a_thread_can_keep_arming_after_the_runtime_has_ended() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let arm = |count| (0..count).all(|_| handle.after(HOUR, || ()).is_pending());
    assert!(arm(20_000));
    drop(runtime);
    for _ in 0..20_000 {
        assert!(!handle.after(HOUR, || ()).is_pending());
    }
}
