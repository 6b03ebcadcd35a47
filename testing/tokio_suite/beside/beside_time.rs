//! What a program sees of timers, the same on the real tokio and on the package in its place.

use std::{
    future::{Future, pending, poll_fn},
    panic::catch_unwind,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc::{self, error::SendTimeoutError},
    task::yield_now,
    time::{Instant, Sleep, advance, interval, interval_at, sleep, sleep_until, timeout_at},
};

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

const MS: Duration = Duration::from_millis(1);

async fn is_ready(future: impl Future) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_is_over_at_the_first_poll() {
    let start = Instant::now();
    sleep(80 * MS).await;
    assert!(is_ready(sleep_until(start + 40 * MS)).await);
    assert!(is_ready(timeout_at(start + MS, pending::<()>())).await);
    let mut sleep = pin!(sleep(10 * MS));
    assert!(!is_ready(sleep.as_mut()).await);
    advance(20 * MS).await;
    assert!(sleep.is_elapsed());
    assert!(is_ready(sleep.as_mut()).await);
}

/// Polls `sleep`, moves it to `deadline`, and checks that it ends in that call.
fn reset_ends(mut sleep: Pin<Box<Sleep>>, deadline: Instant) {
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    sleep.as_mut().reset(deadline);
    assert_eq!(count.get(), 1, "woken at once");
    assert!(sleep.is_elapsed());
    assert_eq!(sleep.deadline(), deadline);
    assert!(sleep.as_mut().poll(&mut cx).is_ready());
    // It can be armed again.
    sleep.as_mut().reset(Instant::now() + 3600 * 1000 * MS);
    assert!(!sleep.is_elapsed());
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    assert_eq!(count.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_moved_to_the_past_ends_at_once() {
    let start = Instant::now();
    sleep(80 * MS).await;
    reset_ends(Box::pin(sleep(200 * MS)), start + 40 * MS);
    reset_ends(Box::pin(sleep(200 * MS)), Instant::now());
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_does_not_wait_ends_when_it_is_moved_to_the_past() {
    let start = Instant::now();
    let mut fired = Box::pin(sleep(40 * MS));
    fired.as_mut().await;
    let over = Box::pin(sleep_until(start));
    for mut sleep in [fired, Box::pin(sleep(200 * MS)), over] {
        for past in [start, Instant::now()] {
            sleep.as_mut().reset(past);
            assert!(sleep.is_elapsed());
        }
        assert!(is_ready(sleep.as_mut()).await);
        sleep.as_mut().reset(Instant::now() + 200 * MS);
        assert!(!sleep.is_elapsed());
        assert!(!is_ready(sleep.as_mut()).await);
    }
}

#[tokio::test]
async fn an_interval_has_a_period() {
    for make in [
        (|| drop(interval(Duration::ZERO))) as fn(),
        || drop(interval_at(Instant::now(), Duration::ZERO)),
    ] {
        let panic = catch_unwind(make).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "`period` must be non-zero.");
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_has_a_time_limit() {
    let (sender, mut receiver) = mpsc::channel(1);
    assert_eq!(sender.send_timeout(1, 5 * MS).await, Ok(()));
    let start = Instant::now();
    let late = sender.send_timeout(2, 5 * MS).await;
    assert_eq!(late, Err(SendTimeoutError::Timeout(2)));
    assert_eq!(late.unwrap_err().to_string(), "timed out waiting on send operation");
    assert_eq!(format!("{late:?}"), r#"Err("Timeout(..)")"#);
    assert!(start.elapsed() >= 5 * MS);
    let (sent, ()) = tokio::join!(sender.send_timeout(3, 50 * MS), async {
        sleep(10 * MS).await;
        assert_eq!(receiver.recv().await, Some(1));
    });
    assert_eq!(sent, Ok(()));
    drop(receiver);
    let closed = sender.send_timeout(4, 5 * MS).await;
    assert_eq!(closed, Err(SendTimeoutError::Closed(4)));
    assert_eq!(closed.unwrap_err().to_string(), "channel closed");
    assert_eq!(closed.unwrap_err().into_inner(), 4);
}

#[tokio::test]
async fn a_sender_is_kept_as_a_permit() {
    let (sender, mut receiver) = mpsc::channel(1);
    let weak = sender.downgrade();
    let permit = sender.reserve_owned().await.unwrap();
    let other = weak.upgrade().unwrap();
    assert!(permit.same_channel_as_sender(&other));
    assert_eq!((other.capacity(), other.max_capacity()), (0, 1));
    let full = other.clone().try_reserve_owned();
    assert!(matches!(full, Err(mpsc::error::TrySendError::Full(it)) if it.same_channel(&other)));
    let sender = permit.send(1);
    assert_eq!(receiver.recv().await, Some(1));
    let sender = sender.reserve_owned().await.unwrap().release();
    assert_eq!((sender.strong_count(), sender.weak_count()), (2, 1));
    drop((sender, other));
    assert_eq!(receiver.recv().await, None);
    assert!(weak.upgrade().is_none());
}

/// Returns a runtime whose clock is paused.
fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

#[test]
fn the_future_of_block_on_runs_before_a_task_whose_sleep_ends_at_the_same_time() {
    for is_armed_first in [false, true] {
        let (runtime, count) = (paused(), Arc::new(Count::default()));
        runtime.block_on(async {
            let (end, ran) = (Instant::now() + 5 * MS, count.clone());
            let task = async move {
                sleep_until(end).await;
                ran.wake();
            };
            let mut own = pin!(sleep_until(end));
            if is_armed_first {
                assert!(!is_ready(own.as_mut()).await);
            }
            let task = tokio::spawn(task);
            // The task arms its sleep.
            yield_now().await;
            own.await;
            assert_eq!(count.get(), 0);
            task.await.unwrap();
            assert_eq!(count.get(), 1);
        });
    }
}

#[test]
fn a_task_that_the_end_of_block_on_leaves_runs_in_the_next_one() {
    let (runtime, count) = (paused(), Arc::new(Count::default()));
    let (ran, five) = (count.clone(), 5 * MS);
    let task = runtime.spawn(async move {
        sleep(five).await;
        ran.wake();
    });
    runtime.block_on(async { sleep(five).await });
    assert_eq!(count.get(), 0);
    runtime.block_on(task).unwrap();
    assert_eq!(count.get(), 1);
}
