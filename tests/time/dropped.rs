//! Futures of time that are dropped between polls, at each poll. The table is in
//! docs/reference/cancel-safety.md.

use std::{cell::Cell, future::pending, pin::pin, rc::Rc, time::Duration};

use tourbillon::time::{
    DelayQueue, Instant, advance, interval_at, sleep, sleep_until, timeout, timeout_at,
    with_tolerance,
};

use crate::common::{HOUR, alarm, dropped::in_each_way, eventually, paused::paused, runtime};

const BRIEF: Duration = Duration::from_millis(1);

/// Runs `cases` in a runtime, and checks that no timer stays.
fn leaves_no_timer(cases: impl AsyncFnOnce()) {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.block_on(cases());
    let pending = || -> usize {
        let metrics = runtime.metrics();
        metrics
            .workers()
            .iter()
            .map(|worker| worker.pending())
            .sum()
    };
    eventually("no timer is pending", || pending() == 0);
}

#[test]
fn a_sleep_that_is_dropped_leaves_no_timer() {
    leaves_no_timer(async || {
        // Dropped while it waits for long, and polled until it ends.
        for long in [true, false] {
            in_each_way(async |way| {
                let length = if long && !way.polls() { HOUR } else { BRIEF };
                way.run(sleep(length), async || {}).await.is_some()
            })
            .await;
        }
        in_each_way(async |way| {
            let deadline = Instant::now() + BRIEF;
            let mut sleep = pin!(sleep_until(deadline));
            let is_ready = way.run(sleep.as_mut(), async || {}).await.is_some();
            // Only the borrow was dropped.
            sleep.await;
            assert!(Instant::now() >= deadline);
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let future = with_tolerance(BRIEF, sleep(BRIEF));
            way.run(future, async || {}).await.is_some()
        })
        .await;
        drop(sleep(HOUR));
        assert!(timeout(BRIEF, sleep(HOUR)).await.is_err());
    });
}

#[test]
fn a_timeout_that_is_dropped_drops_its_future() {
    struct Dropped(Rc<Cell<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    leaves_no_timer(async || {
        for is_at in [false, true] {
            in_each_way(async |way| {
                let dropped = Rc::new(Cell::new(false));
                let future = {
                    let value = Dropped(dropped.clone());
                    async move {
                        pending::<()>().await;
                        drop(value);
                    }
                };
                let ended = match is_at {
                    false => way.run(timeout(BRIEF, future), async || {}).await,
                    true => {
                        let deadline = Instant::now() + BRIEF;
                        way.run(timeout_at(deadline, future), async || {}).await
                    }
                };
                assert!(dropped.get());
                ended.map(Result::unwrap_err).is_some()
            })
            .await;
        }
    });
}

#[test]
fn a_wait_for_a_tick_that_is_dropped_loses_none() {
    leaves_no_timer(async || {
        in_each_way(async |way| {
            let start = Instant::now() + BRIEF;
            let mut interval = interval_at(start, HOUR);
            let tick = way.run(interval.tick(), async || {}).await;
            let is_ready = tick.is_some();
            let tick = match tick {
                Some(tick) => tick,
                None => interval.tick().await,
            };
            assert_eq!(tick, start);
            is_ready
        })
        .await;
    });
}

#[test]
fn a_wait_for_a_value_of_a_delay_queue_that_is_dropped_loses_none() {
    leaves_no_timer(async || {
        in_each_way(async |way| {
            let mut queue = DelayQueue::new();
            for number in 0..3 {
                queue.insert(number, BRIEF * number);
            }
            let first = way.run(queue.expired(), async || {}).await;
            let is_ready = first.is_some();
            let mut values: Vec<_> = first.into_iter().flatten().collect();
            while let Some(expired) = queue.expired().await {
                values.push(expired);
            }
            let values = values.into_iter().map(|it| it.into_inner());
            assert_eq!(values.collect::<Vec<_>>(), [0, 1, 2]);
            is_ready
        })
        .await;
    });
}

#[test]
fn a_jump_of_the_clock_that_is_dropped_is_made_whole_or_not_at_all() {
    let _alarm = alarm();
    paused(1).block_on(async {
        in_each_way(async |way| {
            let before = Instant::now();
            let jump = way.run(advance(HOUR), async || {}).await;
            let jumped = before.elapsed();
            assert!(jumped.is_zero() || jumped == HOUR, "{jumped:?}");
            assert!(jump.is_none() || jumped == HOUR);
            // The next jump is not held up.
            advance(HOUR).await;
            assert!(before.elapsed() == HOUR || before.elapsed() == 2 * HOUR);
            jump.is_some()
        })
        .await;
    });
}
