//! `Timer::reset_from_start`, and from which moment it counts.

use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use crate::common::{HOUR, alarm, paused::paused};
use tourbillon::{
    Runtime, Timer,
    time::{self, Instant},
    timer::{Cancel, Reset, Status},
};

/// The beginning of a wait, beside the moves that do not change it.
#[test]
fn reset_from_start_counts_from_the_last_start_refresh_or_reset() {
    let _alarm = alarm();
    let runtime = paused(1);
    let secs = Duration::from_secs;
    runtime.block_on(async {
        let start = Instant::now();
        let due = |timer: &Timer| timer.deadline().unwrap() - start;
        let after = tourbillon::after(secs(10), || ());
        let at = tourbillon::at(start + secs(10), || ());
        let every = tourbillon::every(secs(10), || ());
        for timer in [&after, &at, &every] {
            assert_eq!(timer.reset_at(start + secs(2)), Reset::Pending);
            assert_eq!(timer.reset_from_start(secs(5)), Reset::Pending);
            assert_eq!(due(timer), secs(5), "the wait began with the start");
        }
        time::advance(secs(1)).await;
        for timer in [&after, &at, &every] {
            assert_eq!(timer.refresh(), Reset::Pending);
            assert_eq!(due(timer), secs(6));
            assert_eq!(timer.reset_at(start + secs(100)), Reset::Pending);
            assert_eq!(timer.reset_from_start(secs(60)), Reset::Pending);
            assert_eq!(due(timer), secs(61), "it began with the refresh");
        }
        time::advance(secs(1)).await;
        for timer in [&after, &at, &every] {
            assert_eq!(timer.reset_after(secs(7)), Reset::Pending);
            assert_eq!(timer.reset_at(start + secs(3)), Reset::Pending);
            assert_eq!(timer.reset_at(start + secs(4)), Reset::Pending);
            assert_eq!(timer.reset_from_start(secs(8)), Reset::Pending);
            assert_eq!(due(timer), secs(10), "it began with the reset");
        }
        // A wait without a deadline has a beginning, too.
        let never = tourbillon::after(Duration::MAX, || ());
        time::advance(secs(1)).await;
        assert_eq!(never.refresh(), Reset::Pending);
        assert_eq!(never.reset_from_start(secs(5)), Reset::Pending);
        assert_eq!(due(&never), secs(8));
        // A wall-clock timer counts on its own clock.
        let noon = time::wall_clock();
        let wall = tourbillon::Handle::current().at_wall(noon + secs(100), || ());
        assert_eq!(wall.reset_at(noon + secs(1)), Reset::Pending);
        assert_eq!(wall.reset_from_start(secs(50)), Reset::Pending);
        assert_eq!(wall.deadline(), Some(noon + secs(50)));
        for timer in [after, at, every, never] {
            timer.cancel();
        }
        wall.cancel();
    });
}

/// While a recurring timer runs, its next wait has begun already, at the deadline of the run.
#[test]
fn a_callback_can_change_its_own_period() {
    let _alarm = alarm();
    let runtime = paused(1);
    runtime.block_on(async {
        let start = Instant::now();
        let (sender, runs) = mpsc::channel();
        let own = Arc::new(OnceLock::<Timer>::new());
        let timer = own.clone();
        let every = tourbillon::every(HOUR, move || {
            sender.send(Instant::now() - start).unwrap();
            let timer = timer.get().expect("it is set before an hour has passed");
            assert_eq!(timer.reset_from_start(2 * HOUR), Reset::AfterRun);
        });
        own.set(every).unwrap();
        time::sleep(6 * HOUR).await;
        own.get().unwrap().cancel();
        assert!(runs.try_iter().eq([HOUR, 3 * HOUR, 5 * HOUR]));
    });
}

/// A wait starts at the deadline of the run, even if an earlier run has set that deadline by
/// `reset_at`.
#[test]
fn a_callback_that_calls_reset_at_starts_a_wait_at_each_deadline() {
    let _alarm = alarm();
    let runtime = paused(1);
    runtime.block_on(async {
        let start = Instant::now();
        let own = Arc::new(OnceLock::<Timer>::new());
        let timer = own.clone();
        let every = tourbillon::every(HOUR, move || {
            let timer = timer.get().expect("it is set before an hour has passed");
            timer.reset_at(Instant::now() + 5 * HOUR);
        });
        own.set(every).unwrap();
        time::sleep(7 * HOUR).await;
        let timer = own.get().unwrap();
        assert_eq!(timer.reset_from_start(2 * HOUR), Reset::Pending);
        assert_eq!(timer.deadline(), Some(start + 8 * HOUR), "it ran after six");
        timer.cancel();
    });
}

/// An unlimited period counts as a delay without end. In contrast, tokio's interval ticks once at
/// first.
#[test]
fn an_unlimited_period_never_fires() {
    let _alarm = alarm();
    let runtime = Runtime::builder().start_paused(true).build().unwrap();
    runtime.block_on(async {
        for period in [Duration::MAX, Duration::from_nanos(1 << 61)] {
            let timer = runtime.try_every(period, || unreachable!()).unwrap();
            assert_eq!((timer.deadline(), timer.status()), (None, Status::Pending));
            time::sleep(10_000 * HOUR).await;
            assert_eq!(timer.cancel(), Cancel::Cancelled);
        }
    });
}
