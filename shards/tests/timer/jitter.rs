//! Jitter is added to deadlines, and never to the grid of a recurring timer.

use std::sync::{Arc, Mutex};

use crate::common::{Calls, Random, Scripted, both_ways, times, turn};
use tourbillon_shards::{Flow, NEVER, Options, Reset, Shard, Timer};

const PERIOD: u64 = 1_000;
const JITTER: u64 = 300;

fn started(
    shard: &Arc<Shard<Scripted>>,
    recurring: bool,
    jitter: u64,
    f: impl FnMut(tourbillon_shards::Outcome) -> Flow + Send + 'static,
) -> Timer<Scripted> {
    let options = Options {
        recurring,
        jitter,
        ..Options::default()
    };
    let timer = Timer::build(shard, PERIOD, options, f);
    timer.start(0);
    timer
}

#[test]
fn jitter_comes_from_the_owner_and_keeps_its_limit() {
    for (drawn, jitter, added) in [
        (0, 300, 0),
        (300, 300, 300),
        (301, 300, 0),
        (1_234, 300, 1_234 % 301),
        (7, 0, 0),
        (u64::MAX, 1, 1),
        (u64::MAX - 1, u64::MAX, NEVER),
        (5, u64::MAX, 5),
    ] {
        both_ways(|shard| {
            shard.owner().set_random(drawn, 0);
            let timer = started(shard, false, jitter, Flow::Break);
            let deadline = (PERIOD + added).min(NEVER - 1);
            assert_eq!(timer.deadline(), Some(deadline));
            assert_eq!(timer.wait(), deadline, "what it waits for again");
        });
    }
}

#[test]
fn a_deadline_of_never_gets_no_jitter() {
    both_ways(|shard| {
        shard.owner().set_random(5, 0);
        let options = Options {
            jitter: 10,
            ..Options::default()
        };
        let timer = Timer::build(shard, NEVER, options, Flow::Break);
        timer.start(0);
        assert_eq!(timer.deadline(), Some(NEVER));
    });
}

/// After thousands of periods, on time and late, each deadline is a multiple of the period plus the
/// jitter that was drawn for it.
#[test]
fn a_recurring_timer_does_not_drift() {
    both_ways(|shard| {
        const STEP: u64 = 97;
        let calls = Calls::default();
        let timer = started(shard, true, JITTER, calls.callback());
        // From here on each run draws once. The start draws again if its exchange fails, which may
        // happen for no reason on other processors and in Miri.
        shard.owner().set_random(STEP, STEP);
        let mut random = Random(3);
        let (mut grid, mut drawn) = (PERIOD, 0);
        for run in 0..times(5_000) {
            let deadline = timer.deadline().unwrap();
            assert_eq!(deadline, grid + drawn % (JITTER + 1), "run {run}");
            assert_eq!(turn(shard, deadline - 1), 0);
            let now = match random.below(4) {
                0 => deadline + random.below(5 * PERIOD),
                _ => deadline,
            };
            assert_eq!(turn(shard, now), 1);
            // The next point of the grid that has not passed.
            grid += PERIOD * ((now - grid) / PERIOD + 1);
            drawn += STEP;
        }
        assert_eq!(timer.wait(), PERIOD);
        assert_eq!(calls.get().len(), times(5_000));
    });
}

#[test]
fn a_moved_deadline_is_exact_and_starts_a_grid() {
    both_ways(|shard| {
        shard.owner().set_random(200, 0);
        let timer = started(shard, true, JITTER, Calls::default().callback());
        assert_eq!(timer.deadline(), Some(PERIOD + 200));
        for (moved, deadline) in [
            (timer.reset_at(5_500), 5_500),
            (timer.refresh(6_000), 6_000 + PERIOD),
            (timer.reset_after(7_000, PERIOD), 7_000 + PERIOD),
        ] {
            assert_eq!(moved, Reset::Pending);
            let _ = timer.reset_at(deadline);
            assert_eq!(turn(shard, deadline), 1);
            assert_eq!(timer.deadline(), Some(deadline + PERIOD + 200));
            let _ = timer.reset_at(NEVER - 1);
        }
    });
}

/// The jitter of the deadline of this run does not affect the deadline that the timer is moved to.
#[test]
fn a_deadline_moved_from_inside_starts_a_grid() {
    both_ways(|shard| {
        shard.owner().set_random(200, 0);
        let cell = Arc::new(Mutex::new(None::<Timer<Scripted>>));
        let (mine, calls) = (cell.clone(), Calls::default());
        let f = calls.answering(move |count| {
            if count == 1 {
                let timer = mine.lock().unwrap();
                let timer = timer.as_ref().expect("it was put there");
                assert_eq!(timer.reset_at(5_000), Reset::AfterRun);
            }
            Flow::Continue(())
        });
        *cell.lock().unwrap() = Some(started(shard, true, JITTER, f));
        assert_eq!(turn(shard, PERIOD + 200), 1);
        let deadline = || cell.lock().unwrap().as_ref().unwrap().deadline();
        assert_eq!(deadline(), Some(5_000));
        assert_eq!(turn(shard, 5_000), 1);
        assert_eq!(deadline(), Some(5_000 + PERIOD + 200));
        let timer = cell.lock().unwrap().take();
        drop(timer);
    });
}

/// The start of a wait is a point of the grid, without jitter.
#[test]
fn reset_from_start_keeps_the_grid() {
    both_ways(|shard| {
        shard.owner().set_random(200, 0);
        let timer = started(shard, true, JITTER, Calls::default().callback());
        assert_eq!(turn(shard, PERIOD + 200), 1);
        assert_eq!(timer.deadline(), Some(2 * PERIOD + 200));
        // This wait started at 1000.
        assert_eq!(timer.reset_from_start(500), Reset::Pending);
        assert_eq!(timer.deadline(), Some(PERIOD + 500));
        assert_eq!(turn(shard, PERIOD + 500), 1);
        assert_eq!(timer.deadline(), Some(PERIOD + 2 * 500 + 200));
    });
}

#[test]
fn jitter_beyond_the_end_of_time_is_ignored() {
    both_ways(|shard| {
        shard.owner().set_random(NEVER, 0);
        let timer = started(shard, true, u64::MAX, Flow::Break);
        assert_eq!(timer.deadline(), Some(NEVER - 1));
        assert_eq!(timer.reset_from_start(2 * PERIOD), Reset::Pending);
        assert_eq!(timer.deadline(), Some(2 * PERIOD), "its wait began at zero");
    });
}
