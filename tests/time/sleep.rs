//! Sleeps, timeouts and intervals on the running clock.

use std::{
    future::{self, Future},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use crate::common::{Drops, HOUR, alarm, eventually, message, runtime};
use tourbillon::{
    runtime::Builder,
    time::{
        Instant, Interval, MissedTickBehavior, Sleep, interval, interval_at, sleep, sleep_until,
        timeout, timeout_at,
    },
};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_sleep_never_ends_early() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let early = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for i in 0..2_000_u32 {
        let early = early.clone();
        tasks.push(runtime.spawn(async move {
            let delay = Duration::from_nanos(u64::from(i) * 17_389);
            let asked = Instant::now() + delay;
            if i % 2 == 0 {
                sleep(delay).await;
            } else {
                sleep_until(asked).await;
            }
            if Instant::now() < asked {
                early.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(early.load(Ordering::SeqCst), 0);
}

#[test]
fn ten_thousand_tasks_sleep_repeatedly() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let slept = Arc::new(AtomicUsize::new(0));
    for i in 0..10_000_u64 {
        let slept = slept.clone();
        runtime.spawn(async move {
            for j in 0..3 {
                sleep(Duration::from_micros((i * 7 + j * 13) % 3_000)).await;
            }
            slept.fetch_add(1, Ordering::SeqCst);
        });
    }
    eventually("all have slept", || slept.load(Ordering::SeqCst) == 10_000);
}

#[test]
fn sleeps_end_in_deadline_order() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let all = {
        let order = order.clone();
        runtime.spawn(async move {
            let base = Instant::now() + 20 * MS;
            let tasks: Vec<_> = (0..50_u32)
                .map(|i| {
                    let place = i * 17 % 50;
                    let order = order.clone();
                    tourbillon::spawn(async move {
                        let deadline = base + place * Duration::from_micros(100);
                        sleep_until(deadline).await;
                        order.lock().unwrap().push(place);
                    })
                })
                .collect();
            // The tasks arm their sleeps. `in_time` tells whether they did so before the first
            // came due.
            tourbillon::task::yield_now().await;
            let in_time = Instant::now() < base;
            for task in tasks {
                task.await.unwrap();
            }
            in_time
        })
    };
    let in_time = runtime.block_on(all).unwrap();
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 50);
    if in_time {
        assert!(order.is_sorted(), "{order:?}");
    }
}

#[test]
fn a_sleep_until_the_past_ends_at_once_and_needs_no_runtime() {
    let past = Instant::now();
    let mut sleep = pin!(sleep_until(past));
    assert!(!sleep.is_elapsed(), "nobody has looked");
    assert!(poll_once(sleep.as_mut()).is_ready());
    assert!(sleep.is_elapsed());
    assert_eq!(sleep.deadline(), past);
    let mut zero = pin!(tourbillon::time::sleep(Duration::ZERO));
    assert!(poll_once(zero.as_mut()).is_ready());
}

#[test]
fn a_pending_sleep_needs_a_runtime() {
    let mut sleep = Box::pin(sleep(HOUR));
    let poll = std::panic::AssertUnwindSafe(|| poll_once(sleep.as_mut()));
    let panic = std::panic::catch_unwind(poll).unwrap_err();
    assert!(message(&*panic).contains("in no Tourbillon runtime"));
}

#[test]
fn an_unlimited_sleep_stays_pending() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let mut sleep = pin!(sleep(Duration::MAX));
        assert!(poll_once(sleep.as_mut()).is_pending());
        tourbillon::time::sleep(MS).await;
        assert!(poll_once(sleep.as_mut()).is_pending());
        assert!(!sleep.is_elapsed());
        // An unlimited sleep can be reset to a deadline.
        sleep.as_mut().reset(Instant::now() + MS);
        sleep.await;
    });
}

#[test]
fn a_pending_sleep_can_be_reset() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        // To an earlier deadline, without a poll in between.
        let mut sleep = pin!(sleep(HOUR));
        assert!(poll_once(sleep.as_mut()).is_pending());
        let to = Instant::now() + 2 * MS;
        sleep.as_mut().reset(to);
        assert_eq!(sleep.deadline(), to);
        sleep.as_mut().await;
        assert!(Instant::now() >= to);
        assert!(sleep.is_elapsed());
    });
    runtime.block_on(async {
        // To later deadlines, again and again.
        let mut sleep = pin!(sleep(30 * MS));
        for _ in 0..20 {
            if poll_once(sleep.as_mut()).is_ready() {
                break;
            }
            sleep.as_mut().reset(Instant::now() + 30 * MS);
        }
        sleep.as_mut().await;
        assert!(Instant::now() >= sleep.deadline());
    });
    runtime.block_on(async {
        // Before the first poll.
        let mut sleep = pin!(sleep(HOUR));
        let to = Instant::now() + MS;
        sleep.as_mut().reset(to);
        sleep.as_mut().await;
        assert!(Instant::now() >= to);
    });
}

#[test]
fn an_elapsed_sleep_can_be_reset() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let task = runtime.spawn(async {
        let mut sleep = pin!(sleep(Duration::ZERO));
        for i in 0..200_u32 {
            sleep.as_mut().await;
            assert!(sleep.is_elapsed());
            let to = Instant::now() + i * Duration::from_micros(3);
            sleep.as_mut().reset(to);
            assert_eq!(sleep.deadline(), to);
            if i % 16 == 0 {
                // The task may move to another worker, while the timer stays where it was armed.
                tourbillon::task::yield_now().await;
            }
        }
        sleep.as_mut().await;
        assert!(Instant::now() >= sleep.deadline());
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn a_sleep_wakes_its_last_waker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for _ in 0..200 {
        let mut sleep: Pin<Box<Sleep>> = Box::pin(sleep(Duration::from_micros(300)));
        runtime.block_on(future::poll_fn(|cx| {
            let _ = sleep.as_mut().poll(cx);
            Poll::Ready(())
        }));
        let task = runtime.spawn(async move {
            let _ = poll_once(sleep.as_mut());
            sleep.await;
        });
        runtime.block_on(task).unwrap();
    }
}

#[test]
fn a_dropped_sleep_is_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let task = runtime.spawn(async {
        for _ in 0..1_000 {
            let mut sleep = Box::pin(sleep(HOUR));
            assert!(poll_once(sleep.as_mut()).is_pending());
        }
    });
    runtime.block_on(task).unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.total().cancelled(), 1_000);
    assert_eq!(metrics.total().fired(), 0);
    assert_eq!(
        metrics.workers()[0].stored(),
        0,
        "taken out by its own worker"
    );
}

#[test]
fn a_timeout_returns_the_result_of_a_ready_future() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        assert_eq!(timeout(HOUR, async { 7 }).await, Ok(7));
        // A future that is ready wins even with a timeout of zero.
        assert_eq!(timeout(Duration::ZERO, async { 8 }).await, Ok(8));
        let task = tourbillon::spawn(async {
            sleep(MS).await;
            9
        });
        assert_eq!(timeout(HOUR, task).await.unwrap().unwrap(), 9);
        assert_eq!(timeout(Duration::MAX, async { 10 }).await, Ok(10));
    });
    // Only waits that were not ready in the first poll needed a timer.
    assert!(runtime.metrics().total().cancelled() <= 2);
}

#[test]
fn a_timeout_is_never_early_and_drops_its_future() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    runtime.block_on(async {
        for delay in [Duration::ZERO, MS, 5 * MS] {
            let token = drops.token();
            let before = drops.count();
            let start = Instant::now();
            let never = async move {
                let _token = token;
                future::pending::<()>().await;
            };
            let elapsed = timeout(delay, never).await.unwrap_err();
            assert!(start.elapsed() >= delay);
            assert_eq!(drops.count(), before + 1);
            assert_eq!(elapsed.to_string(), "deadline has elapsed");
            let error = std::io::Error::from(elapsed);
            assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        }
        let deadline = Instant::now() + 2 * MS;
        assert!(timeout_at(deadline, future::pending::<()>()).await.is_err());
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn the_future_in_a_timeout_can_be_taken_back() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let mut sleeping = timeout(2 * HOUR, Box::pin(sleep(HOUR)));
        assert!(poll_once(Pin::new(&mut sleeping)).is_pending());
        assert!(!sleeping.get_ref().is_elapsed());
        sleeping.get_mut().as_mut().reset(Instant::now());
        sleeping.into_inner().await;
    });
}

/// Takes `count` ticks, and checks that none of them is early. Returns when they were due.
async fn ticks(interval: &mut Interval, count: usize) -> Vec<Instant> {
    let mut due = Vec::new();
    for _ in 0..count {
        let tick = interval.tick().await;
        assert!(Instant::now() >= tick, "early");
        due.push(tick);
    }
    due
}

#[test]
fn an_interval_ticks_at_once_and_then_on_its_grid() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let before = Instant::now();
        let mut interval = interval(2 * MS);
        let after = Instant::now();
        assert_eq!(interval.period(), 2 * MS);
        assert_eq!(interval.missed_tick_behavior(), MissedTickBehavior::Skip);
        let due = ticks(&mut interval, 10).await;
        assert!(due[0] >= before && due[0] <= after);
        for pair in due.windows(2) {
            assert!(pair[1] > pair[0]);
        }
        for tick in &due {
            assert_eq!((*tick - due[0]).as_nanos() % 2_000_000, 0, "it drifts");
        }
    });
}

#[test]
fn an_interval_may_begin_later() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let start = Instant::now() + 3 * MS;
        let mut interval = interval_at(start, MS);
        assert_eq!(ticks(&mut interval, 1).await, [start]);
    });
}

/// Returns an interval that has missed about five ticks, and the time at which the first of them
/// was due.
async fn late(behavior: MissedTickBehavior) -> (Interval, Instant) {
    let mut interval = interval(2 * MS);
    interval.set_missed_tick_behavior(behavior);
    let first = interval.tick().await;
    thread::sleep(11 * MS);
    (interval, first + 2 * MS)
}

#[test]
fn burst_catches_up_on_all_missed_ticks() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (mut interval, missed) = late(MissedTickBehavior::Burst).await;
        for i in 0..10 {
            assert_eq!(interval.tick().await, missed + i * 2 * MS);
        }
    });
}

#[test]
fn delay_continues_one_period_after_the_late_tick() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (mut interval, missed) = late(MissedTickBehavior::Delay).await;
        let before = Instant::now();
        assert_eq!(interval.tick().await, missed);
        let after = Instant::now();
        let next = interval.tick().await;
        assert!(next >= before + 2 * MS && next <= after + 2 * MS);
    });
}

#[test]
fn skip_continues_on_the_grid() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let (mut interval, missed) = late(MissedTickBehavior::Skip).await;
        let before = Instant::now();
        assert_eq!(interval.tick().await, missed);
        let next = interval.tick().await;
        assert!(next > before, "what was missed is left out");
        assert_eq!((next - missed).as_nanos() % 2_000_000, 0);
    });
}

#[test]
fn an_interval_can_be_reset() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let mut interval = interval(HOUR);
        interval.tick().await;
        interval.reset_immediately();
        interval.tick().await;
        let before = Instant::now();
        interval.reset_after(2 * MS);
        assert!(interval.tick().await >= before + 2 * MS);
        let at = Instant::now() + MS;
        interval.reset_at(at);
        assert_eq!(interval.tick().await, at);
        interval.reset();
        assert!(timeout(2 * MS, interval.tick()).await.is_err());
    });
}

#[test]
fn a_dropped_tick_is_not_lost() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let start = Instant::now() + 10 * MS;
        let mut interval = interval_at(start, HOUR);
        // If the machine is fast enough, the timeout elapses before the tick. The tick is the
        // same.
        match timeout(MS, interval.tick()).await {
            Ok(tick) => assert_eq!(tick, start),
            Err(_) => assert_eq!(interval.tick().await, start),
        }
    });
}

#[test]
fn intervals_accept_extreme_periods() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(async {
        let mut never = interval(Duration::MAX);
        never.tick().await;
        assert!(timeout(MS, never.tick()).await.is_err());
        for behavior in [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ] {
            let mut always = interval(Duration::ZERO);
            always.set_missed_tick_behavior(behavior);
            let due = ticks(&mut always, 100).await;
            assert!(due.windows(2).all(|pair| pair[1] > pair[0]));
        }
    });
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// As in tokio: the task need not wait for the worker.
#[test]
fn a_sleep_that_is_moved_to_the_past_ends_in_that_call() {
    let _alarm = alarm();
    for paused in [false, true] {
        let mut runtime = Builder::new();
        runtime.worker_threads(1).start_paused(paused);
        runtime.build().unwrap().block_on(async {
            let start = Instant::now();
            sleep(MS).await;
            for past in [start, Instant::now()] {
                let count = Arc::new(Count::default());
                let waker = Waker::from(count.clone());
                let mut cx = Context::from_waker(&waker);
                let mut sleep = pin!(sleep(HOUR));
                assert!(sleep.as_mut().poll(&mut cx).is_pending());
                sleep.as_mut().reset(past);
                assert_eq!(count.0.load(Ordering::SeqCst), 1);
                assert!(sleep.is_elapsed());
                assert_eq!(sleep.deadline(), past);
                assert!(sleep.as_mut().poll(&mut cx).is_ready());
                sleep.as_mut().reset(Instant::now() + HOUR);
                assert!(!sleep.is_elapsed());
                assert!(sleep.as_mut().poll(&mut cx).is_pending());
                assert_eq!(count.0.load(Ordering::SeqCst), 1);
            }
        });
    }
}

// As in tokio: only a sleep that waits needs its worker.
#[test]
fn a_sleep_that_does_not_wait_ends_when_it_is_moved_to_the_past() {
    let _alarm = alarm();
    for paused in [false, true] {
        let mut runtime = Builder::new();
        runtime.worker_threads(1).start_paused(paused);
        runtime.build().unwrap().block_on(async {
            let mut cx = Context::from_waker(Waker::noop());
            let mut ends = |mut sleep: Pin<&mut Sleep>| {
                // Also a moment that is after the former deadline.
                for past in [Instant::now() - MS, Instant::now()] {
                    sleep.as_mut().reset(past);
                    assert!(sleep.is_elapsed());
                    assert_eq!(sleep.deadline(), past);
                }
                assert!(sleep.as_mut().poll(&mut cx).is_ready());
                sleep.as_mut().reset(Instant::now());
                assert!(sleep.is_elapsed());
                sleep.as_mut().reset(Instant::now() + HOUR);
                assert!(!sleep.is_elapsed());
                assert!(sleep.as_mut().poll(&mut cx).is_pending());
            };
            let begin = Instant::now();
            sleep(2 * MS).await;
            ends(pin!(sleep(HOUR)));
            ends(pin!(sleep(Duration::ZERO)));
            ends(pin!(sleep_until(begin)));
            let mut fired = pin!(sleep(MS));
            fired.as_mut().await;
            ends(fired);
        });
    }
}

#[test]
fn a_task_that_moves_its_sleep_to_the_past_again_and_again_lets_others_run() {
    let _alarm = alarm();
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let ran = Arc::new(AtomicUsize::new(0));
        let runs = ran.clone();
        let task = tourbillon::spawn(async move { runs.fetch_add(1, Ordering::SeqCst) });
        let mut sleep = pin!(sleep(HOUR));
        let mut rounds = 0;
        while ran.load(Ordering::SeqCst) == 0 {
            sleep.as_mut().reset(Instant::now());
            sleep.as_mut().await;
            rounds += 1;
            assert!(rounds < 10_000, "the other task waits");
        }
        task.await.unwrap();
    });
}
