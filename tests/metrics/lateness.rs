//! How late timers are: one histogram has all timers that were taken from a store, another has a
//! sample of those that ran.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    thread,
    time::{Duration, SystemTime},
};

use tourbillon::{Runtime, Timer, runtime::Builder, task::yield_now, time::sleep};

use crate::common::{alarm, eventually, on_worker};

const MS: Duration = Duration::from_millis(1);

/// Builds a runtime of one worker, without rescue.
fn alone() -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(1).helpers(0..=0);
    builder.build().unwrap()
}

#[test]
fn each_timer_is_counted_when_it_is_taken() {
    let _alarm = alarm();
    let runtime = alone();
    let task = runtime.spawn(async {
        for i in 0..500 {
            drop(tourbillon::after(MS / 50 * i, || ()));
        }
        let sleeps: Vec<_> = (0..300)
            .map(|i| tourbillon::spawn(sleep(MS / 5 + MS / 50 * i)))
            .collect();
        for sleep in sleeps {
            sleep.await.unwrap();
        }
        let runs = Timer::every(MS).times(5).start(|| ());
        while runs.is_pending() {
            yield_now().await;
        }
    });
    runtime.block_on(task).unwrap();
    let late = || runtime.metrics().wake_lateness();
    eventually("all have run", || {
        let total = runtime.metrics().total();
        total.over() == total.armed()
    });
    assert_eq!(late().count(), 805);
    let metrics = runtime.metrics();
    assert_eq!(metrics.workers()[0].wake_lateness(), &late());
    assert!(late().sum() > Duration::ZERO);
    // A cancelled timer is not late.
    runtime.handle().after(MS, || ()).cancel();
    drop(runtime.handle().after(MS, || ()));
    eventually("the other has run", || late().count() == 806);
}

#[test]
fn timers_behind_a_long_job_are_late_by_its_length() {
    const BLOCKED: Duration = Duration::from_millis(50);
    let _alarm = alarm();
    let runtime = alone();
    on_worker(&runtime, || {
        for _ in 0..10 {
            drop(tourbillon::after(MS, || ()));
        }
        thread::sleep(MS + BLOCKED);
    });
    let late = || runtime.metrics().wake_lateness();
    eventually("they have run", || {
        let total = runtime.metrics().total();
        total.over() == total.armed()
    });
    let late = late();
    assert!(late.sum() >= 10 * BLOCKED, "{late:?}");
    assert!(late.quantile(0.5).unwrap() >= BLOCKED, "{late:?}");
}

#[test]
fn queued_callbacks_are_sampled() {
    const BLOCKED: Duration = Duration::from_millis(5);
    let _alarm = alarm();
    let runtime = alone();
    let late = || runtime.metrics().queue_lateness();
    // In each round, several timers are taken at the same moment, and run one behind the other.
    let mut rounds = 0;
    eventually("one of those moments was looked at", || {
        rounds += 1;
        on_worker(&runtime, || {
            for _ in 0..3 {
                drop(tourbillon::after(Duration::ZERO, || thread::sleep(BLOCKED)));
            }
        });
        eventually("they have run", || {
            let total = runtime.metrics().total();
            total.over() == total.armed()
        });
        // A single sample may be of another timer of the round.
        late().quantile(1.0) >= Some(2 * BLOCKED)
    });
    let metrics = runtime.metrics();
    assert!(late().count() <= metrics.wake_lateness().count());
    assert_eq!(metrics.workers()[0].queue_lateness(), &late());
}

#[test]
fn a_sleeping_task_is_counted_once_when_it_is_polled() {
    const BLOCKED: Duration = Duration::from_millis(5);
    let _alarm = alarm();
    let runtime = alone();
    let late = || runtime.metrics().queue_lateness();
    let mut fired = 0;
    eventually("one of them was looked at", || {
        fired += 1;
        let task = runtime.spawn(async {
            let mut slept = pin!(sleep(MS));
            poll_fn(|cx| {
                assert!(slept.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            // The worker takes both sleeps at about the same time. The outer task then runs
            // behind this one, which blocks.
            tourbillon::spawn(async {
                sleep(MS).await;
                thread::sleep(BLOCKED);
            });
            slept.as_mut().await;
            // A second poll does not record the lateness again.
            for _ in 0..50 {
                let again = poll_fn(|cx| Poll::Ready(slept.as_mut().poll(cx)));
                assert!(again.await.is_ready());
            }
        });
        runtime.block_on(task).unwrap();
        late().count() > 0
    });
    eventually("all are over", || {
        let total = runtime.metrics().total();
        total.over() == total.armed()
    });
    // Each round counts at most two sleeps: that of the task, and that of the spawned task. A
    // sleep that counted each poll would count far more.
    assert!(late().count() <= 2 * fired, "{:?} of {fired}", late());
}

#[test]
fn timers_of_other_clocks_are_counted_when_they_are_taken() {
    let _alarm = alarm();
    let runtime = alone();
    for _ in 0..50 {
        let soon = SystemTime::now() + MS;
        drop(Timer::at_wall(soon).on(runtime.handle()).start(|| ()));
        drop(Timer::after_boot(MS).on(runtime.handle()).start(|| ()));
    }
    eventually("all have run", || runtime.metrics().total().fired() == 100);
    let late = runtime.metrics().wake_lateness();
    // If the machine's clock was set during the test, timers that the step jumped over are not
    // late.
    assert!((50..=100).contains(&late.count()), "{late:?}");
}

/// A timer that was due in 1970 is so late that the sum overflows after a hundred of them.
#[test]
fn lateness_of_years_does_not_overflow_the_sum() {
    let _alarm = alarm();
    let runtime = alone();
    let late = || runtime.metrics().wake_lateness();
    let mut last = Duration::ZERO;
    // If the machine's clock is set during the test, timers that the step jumps over are not late.
    eventually("a hundred were counted", || {
        let timer = Timer::at_wall(SystemTime::UNIX_EPOCH).on(runtime.handle());
        drop(timer.start(|| ()));
        let sum = late().sum();
        assert!(sum >= last, "from {last:?} back to {sum:?}");
        last = sum;
        late().count() >= 100
    });
    eventually("all have run", || {
        let total = runtime.metrics().total();
        total.over() == total.armed()
    });
    let late = late();
    let longest = late.buckets().last().unwrap().from();
    assert_eq!(late.sum(), longest * u32::try_from(late.count()).unwrap());
    assert_eq!(late.mean(), Some(longest));
}
