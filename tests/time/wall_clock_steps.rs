//! The paused wall clock is set forward and back. Wall-clock timers follow it or are skipped, as
//! their policy says. Timers of other clocks are not affected.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::common::{HOUR, alarm, paused::paused};
use tourbillon::{
    Timer,
    time::{self, Instant, NotPaused, advance, set_wall_clock, sleep, wall_clock},
    timer::{Cancel, OnStep, Outcome, Reset, Status, WallTimer},
};

const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(86_400);
const POLICIES: [OnStep; 2] = [OnStep::Fire, OnStep::Skip];

/// Noon of the first day of 2026.
fn noon() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_268_800)
}

/// A timer's outcome, the wall clock's time then, and the time since arming on the runtime's
/// clock.
type Told = (Outcome, SystemTime, Duration);

#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<Told>>>);

impl Ends {
    fn get(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    fn teller(&self) -> impl FnMut(Outcome) + Send + 'static {
        let (ends, start) = (self.0.clone(), Instant::now());
        move |how| {
            let end = (how, wall_clock(), start.elapsed());
            ends.lock().unwrap().push(end);
        }
    }

    /// Returns a wall-clock timer that takes its outcome.
    fn timer(&self, at: SystemTime, on_step: OnStep) -> WallTimer {
        let tell = self.teller();
        Timer::at_wall(at).on_step(on_step).start_with(tell)
    }
}

/// Runs a test at noon, on several numbers of workers, both outside of a task and in one.
fn at_noon<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        for in_task in [false, true] {
            let runtime = paused(workers);
            runtime.set_wall_clock(noon()).unwrap();
            if in_task {
                runtime.block_on(runtime.spawn(test())).unwrap();
            } else {
                runtime.block_on(test());
            }
        }
    }
}

/// Sets the wall clock, and waits until everything that is due has run.
async fn step(to: SystemTime) {
    set_wall_clock(to).unwrap();
    advance(Duration::ZERO).await;
    assert_eq!(wall_clock(), to);
}

#[test]
fn a_step_over_the_deadline_fires_at_once_or_skips() {
    at_noon(|| async {
        let (fires, skips) = (Ends::default(), Ends::default());
        let fired = fires.timer(noon() + HOUR, OnStep::Fire);
        let skipped = skips.timer(noon() + HOUR, OnStep::Skip);
        // By default it runs.
        let plain = Timer::at_wall(noon() + HOUR).start(|| ());
        step(noon() + 2 * HOUR).await;
        let end = |how| (how, noon() + 2 * HOUR, Duration::ZERO);
        assert_eq!(fires.get(), [end(Outcome::Fired)]);
        assert_eq!(skips.get(), [end(Outcome::Cancelled)]);
        assert_eq!(fired.status(), Status::Over(Outcome::Fired));
        assert_eq!(skipped.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(plain.status(), Status::Over(Outcome::Fired));
        assert_eq!(skipped.cancel(), Cancel::Over);
    });
}

#[test]
fn a_skipped_plain_callback_is_dropped() {
    at_noon(|| async {
        let drops = crate::common::Drops::new();
        let token = drops.token();
        let timer = Timer::at_wall(noon() + MS)
            .on_step(OnStep::Skip)
            .start(move || unreachable!("{token:?}"));
        step(noon() + 2 * MS).await;
        assert_eq!(drops.count(), 1);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
    });
}

#[test]
fn a_step_to_exactly_the_deadline_fires() {
    at_noon(|| async {
        for on_step in POLICIES {
            step(noon()).await;
            let ends = Ends::default();
            ends.timer(noon() + HOUR, on_step);
            step(noon() + HOUR).await;
            let end = (Outcome::Fired, noon() + HOUR, Duration::ZERO);
            assert_eq!(ends.get(), [end], "{on_step:?}");
        }
    });
}

#[test]
fn a_step_that_falls_short_shortens_the_wait() {
    at_noon(|| async {
        for on_step in POLICIES {
            step(noon()).await;
            let ends = Ends::default();
            let timer = ends.timer(noon() + HOUR, on_step);
            step(noon() + HOUR - NS).await;
            assert_eq!(ends.get(), []);
            assert_eq!(timer.deadline(), Some(noon() + HOUR));
            advance(NS).await;
            assert_eq!(ends.get(), [(Outcome::Fired, noon() + HOUR, NS)]);
        }
    });
}

#[test]
fn a_step_back_lengthens_the_wait_exactly() {
    at_noon(|| async {
        for on_step in POLICIES {
            step(noon()).await;
            let ends = Ends::default();
            ends.timer(noon() + HOUR, on_step);
            step(noon() - HOUR).await;
            advance(2 * HOUR - NS).await;
            assert_eq!(ends.get(), [], "it waits for longer");
            sleep(HOUR).await;
            assert_eq!(
                ends.get(),
                [(Outcome::Fired, noon() + HOUR, 2 * HOUR)],
                "the sleep goes by its deadline"
            );
        }
    });
}

#[test]
fn many_steps_have_the_effect_of_their_sum() {
    at_noon(|| async {
        let (fires, skips) = (Ends::default(), Ends::default());
        fires.timer(noon() + HOUR, OnStep::Fire);
        skips.timer(noon() + HOUR, OnStep::Skip);
        for i in 1..=50 {
            set_wall_clock(noon() + HOUR - i * MS).unwrap();
            set_wall_clock(noon() - i * DAY).unwrap();
            if i % 7 == 0 {
                advance(MS).await;
            }
            if i % 5 == 0 {
                step(noon() - i * HOUR).await;
            }
        }
        assert_eq!((fires.get().len(), skips.get().len()), (0, 0));
        // At the end, the deadline passes without a step over it.
        set_wall_clock(noon() + HOUR - 3 * MS).unwrap();
        sleep(DAY).await;
        let end = (Outcome::Fired, noon() + HOUR, 10 * MS);
        assert_eq!(fires.get(), [end]);
        assert_eq!(skips.get(), [end]);
    });
}

#[test]
fn each_step_is_judged_on_its_own() {
    at_noon(|| async {
        let (skips, later) = (Ends::default(), Ends::default());
        skips.timer(noon() + HOUR, OnStep::Skip);
        later.timer(noon() + 3 * HOUR, OnStep::Skip);
        // The second step follows immediately, so no worker serves the clock in between.
        set_wall_clock(noon() + 2 * HOUR).unwrap();
        step(noon()).await;
        let told = skips.get().into_iter().map(|end| end.0);
        assert_eq!(
            told.collect::<Vec<_>>(),
            [Outcome::Cancelled],
            "jumped over"
        );
        assert_eq!(later.get(), []);
        sleep(4 * HOUR).await;
        let end = (Outcome::Fired, noon() + 3 * HOUR, 3 * HOUR);
        assert_eq!(later.get(), [end]);
    });
}

#[test]
fn a_deadline_that_passed_by_itself_is_not_skipped() {
    at_noon(|| async {
        // The deadline passes, and the step follows.
        let ends = Ends::default();
        ends.timer(noon() + HOUR, OnStep::Skip);
        advance(HOUR).await;
        step(noon() + 9 * HOUR).await;
        assert_eq!(ends.get(), [(Outcome::Fired, noon() + HOUR, HOUR)]);

        // The deadline passes with the step, before any worker polls.
        step(noon()).await;
        let ends = Ends::default();
        ends.timer(noon(), OnStep::Skip);
        set_wall_clock(noon() + HOUR).unwrap();
        advance(Duration::ZERO).await;
        let told: Vec<_> = ends.get().into_iter().map(|(how, ..)| how).collect();
        assert_eq!(told, [Outcome::Fired]);

        // The step comes first, and then the deadline.
        step(noon()).await;
        let ends = Ends::default();
        ends.timer(noon() + HOUR, OnStep::Skip);
        set_wall_clock(noon() + HOUR / 2).unwrap();
        advance(HOUR).await;
        let end = (Outcome::Fired, noon() + HOUR + HOUR / 2, HOUR);
        assert_eq!(ends.get(), [end], "one jump");
    });
}

#[test]
fn a_timer_armed_in_the_past_runs_under_either_policy() {
    at_noon(|| async {
        for on_step in POLICIES {
            let ends = Ends::default();
            // The timers are armed right after a step. It did not jump over them, as they did not
            // exist yet.
            set_wall_clock(noon() - DAY).unwrap();
            set_wall_clock(noon() + DAY).unwrap();
            ends.timer(noon(), on_step);
            ends.timer(UNIX_EPOCH, on_step);
            ends.timer(noon() + DAY, on_step);
            advance(Duration::ZERO).await;
            let end = (Outcome::Fired, noon() + DAY, Duration::ZERO);
            assert_eq!(ends.get(), [end; 3], "{on_step:?}");
        }
    });
}

#[test]
fn steps_do_not_affect_timers_of_other_clocks() {
    at_noon(|| async {
        let ends = Ends::default();
        let (after, boot, every) = (ends.teller(), ends.teller(), ends.teller());
        let at_boot = time::BootInstant::now() + HOUR;
        let recurring = Timer::every(HOUR).times(1).start_with(every);
        Timer::after(HOUR).start_with(after);
        Timer::at_boot(at_boot).start_with(boot);
        for to in [noon() + DAY, noon() - DAY, noon() + 30 * DAY] {
            step(to).await;
        }
        assert_eq!(ends.get(), []);
        assert_eq!(at_boot - time::BootInstant::now(), HOUR);
        sleep(HOUR).await;
        advance(Duration::ZERO).await;
        let end = (Outcome::Fired, noon() + 30 * DAY + HOUR, HOUR);
        assert_eq!(ends.get(), [end; 3]);
        assert_eq!(recurring.status(), Status::Over(Outcome::Fired));
    });
}

#[test]
fn a_timer_can_be_moved_and_cancelled_across_steps() {
    at_noon(|| async {
        for on_step in POLICIES {
            step(noon()).await;
            let (moved, cancelled) = (Ends::default(), Ends::default());
            let timer = moved.timer(noon() + HOUR, on_step);
            let other = cancelled.timer(noon() + HOUR, on_step);
            assert_eq!(timer.reset_at(noon() + DAY), Reset::Pending);
            step(noon() + 2 * HOUR).await;
            assert_eq!(moved.get(), [], "it is out of the way");
            assert_eq!(other.cancel(), Cancel::Over);
            assert_eq!(timer.reset_at(noon() + 3 * HOUR), Reset::Pending);
            step(noon()).await;
            // The delay is still the one with which the timer was armed.
            assert_eq!(timer.refresh(), Reset::Pending);
            assert_eq!(timer.deadline(), Some(noon() + HOUR));
            sleep(2 * HOUR).await;
            assert_eq!(moved.get(), [(Outcome::Fired, noon() + HOUR, HOUR)]);

            step(noon()).await;
            let timer = cancelled.timer(noon() + HOUR, on_step);
            step(noon() + HOUR / 2).await;
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            step(noon() + 2 * HOUR).await;
            assert_eq!(cancelled.get().len(), 2, "told once each");
        }
    });
}

#[test]
fn names_find_timers_across_steps() {
    at_noon(|| async {
        let timers = [OnStep::Fire, OnStep::Skip].map(|on_step| {
            let timer = Timer::at_wall(noon() + HOUR).name("tea").on_step(on_step);
            timer.start(|| ())
        });
        let handle = tourbillon::Handle::current();
        step(noon() + HOUR / 2).await;
        assert_eq!(handle.count_named("tea"), 2);
        assert_eq!(handle.refresh_named("tea"), 0, "they wait for a moment");
        step(noon() + DAY).await;
        assert_eq!(handle.count_named("tea"), 0);
        assert_eq!(handle.cancel_all_named("tea"), 0);
        assert!(timers.iter().all(|timer| !timer.is_pending()));
    });
}

#[test]
fn a_sleep_goes_from_wall_deadline_to_wall_deadline() {
    at_noon(|| async {
        let ends = Ends::default();
        for i in 1..=100 {
            ends.timer(noon() + i * HOUR, POLICIES[i as usize % 2]);
        }
        sleep(100 * HOUR).await;
        advance(Duration::ZERO).await;
        let expected = (1..=100).map(|i| (Outcome::Fired, noon() + i * HOUR, i * HOUR));
        assert_eq!(ends.get(), expected.collect::<Vec<_>>());
    });
}

#[test]
fn steps_reach_to_the_ends_of_the_clock_and_no_further() {
    at_noon(|| async {
        let ends = Ends::default();
        ends.timer(noon() + HOUR, OnStep::Fire);
        // A step to before the zero of the clock's shard, and the last day of the runtime's clock.
        set_wall_clock(UNIX_EPOCH).unwrap();
        advance(Duration::MAX).await;
        assert_eq!(ends.get().len(), 1);
        set_wall_clock(noon()).unwrap();
        // This timer would be due after the end of the runtime's clock. The advance returns all
        // the same.
        let never = ends.timer(noon() + HOUR, OnStep::Fire);
        advance(HOUR).await;
        assert_eq!(wall_clock(), noon());
        assert!(never.is_pending());
        step(noon() + HOUR).await;
        assert_eq!(ends.get().len(), 2);
    });
}

#[test]
fn a_running_clock_cannot_be_set() {
    let _alarm = alarm();
    let runtime = crate::common::runtime(2);
    assert_eq!(runtime.set_wall_clock(noon()), Err(NotPaused));
    runtime.block_on(async {
        assert_eq!(set_wall_clock(noon()), Err(NotPaused));
        time::pause();
        assert_eq!(set_wall_clock(noon()), Ok(()));
        time::resume();
        assert_eq!(set_wall_clock(noon()), Err(NotPaused));
        assert!(wall_clock() >= noon() && wall_clock() < noon() + HOUR);
    });
    assert!(NotPaused.to_string().contains("paused"));
}

#[test]
fn wall_timers_live_through_pause_and_resume() {
    let _alarm = alarm();
    let runtime = crate::common::runtime(2);
    let ends = Ends::default();
    runtime.block_on(async {
        time::pause();
        set_wall_clock(noon()).unwrap();
        let soon = ends.timer(noon() + 20 * MS, OnStep::Skip);
        let late = ends.timer(noon() + DAY, OnStep::Skip);
        time::resume();
        while soon.is_pending() {
            sleep(MS).await;
        }
        assert!(
            wall_clock() >= noon() + 20 * MS,
            "in real time, by that clock"
        );
        time::pause();
        let (shown, start) = (wall_clock(), Instant::now());
        sleep(2 * DAY).await;
        assert_eq!(start.elapsed(), 2 * DAY);
        assert_eq!(wall_clock(), shown + 2 * DAY);
        assert!(!late.is_pending());
        let told: Vec<_> = ends.get().iter().map(|end| (end.0, end.1)).collect();
        assert_eq!(told[0].0, Outcome::Fired);
        assert_eq!(told[1], (Outcome::Fired, noon() + DAY));
    });
}

#[test]
fn a_step_during_shutdown_gives_each_timer_one_outcome() {
    let _alarm = alarm();
    for i in 0..50_u32 {
        let runtime = paused(1 + i as usize % 3);
        runtime.set_wall_clock(noon()).unwrap();
        let ends = Ends::default();
        {
            let _entered = runtime.enter();
            for j in 0..20 {
                ends.timer(noon() + j * HOUR, POLICIES[j as usize % 2]);
            }
        }
        runtime
            .handle()
            .set_wall_clock(noon() + i * HOUR / 2)
            .unwrap();
        drop(runtime);
        assert_eq!(ends.get().len(), 20);
    }
}
