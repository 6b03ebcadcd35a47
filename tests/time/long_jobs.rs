//! Sleeps whose deadline passes while a job holds its worker, which reads no clock for them.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use crate::common::{HOUR, alarm, runtime};
use tourbillon::{
    task::block_in_place,
    time::{Instant, Sleep, interval, sleep, sleep_until},
};

const MS: Duration = Duration::from_millis(1);

/// Holds the worker, and returns a deadline that has passed meanwhile.
fn hold() -> Instant {
    let deadline = Instant::now() + 3 * MS;
    thread::sleep(5 * MS);
    assert!(deadline < Instant::now());
    deadline
}

/// Waits for a sleep that has a deadline in the past.
async fn ends(mut sleep: Pin<&mut Sleep>) {
    sleep.as_mut().await;
    assert!(sleep.is_elapsed());
}

#[test]
fn a_sleep_whose_deadline_passed_in_this_job_ends() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let task = runtime.spawn(async {
        ends(pin!(sleep_until(hold()))).await;
        // Moved, before and after its first poll.
        let mut moved = pin!(sleep(HOUR));
        moved.as_mut().reset(hold());
        ends(moved).await;
        let mut moved = pin!(sleep(HOUR));
        poll_fn(|cx| {
            assert!(moved.as_mut().poll(cx).is_pending());
            moved.as_mut().reset(hold());
            Poll::Ready(())
        })
        .await;
        ends(moved).await;
        let mut ticks = interval(HOUR);
        ticks.tick().await;
        let deadline = hold();
        ticks.reset_at(deadline);
        assert_eq!(ticks.tick().await, deadline);
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn a_first_poll_in_place_or_outside_finds_that_the_deadline_has_passed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let at_once = || {
        let deadline = hold();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(pin!(sleep_until(deadline)).poll(&mut cx).is_ready());
    };
    let task = runtime.spawn(async move { block_in_place(at_once) });
    runtime.block_on(task).unwrap();
    let _entered = runtime.enter();
    at_once();
}
