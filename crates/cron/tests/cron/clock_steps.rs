//! Cron jobs on a paused clock: each job runs at exactly the instants of its schedule, over weeks,
//! over changes to and from summer time, and when the wall clock is set.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use tourbillon::{
    Runtime,
    runtime::Builder,
    time::{advance, set_wall_clock, sleep, wall_clock},
    timer::Outcome,
};
use tourbillon_cron::{Cron, CronJob, Missed, jiff::Timestamp};
use tourbillon_support::{HOUR, alarm, paused::paused};

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Returns the instant of a date and time in UTC.
fn utc(text: &str) -> SystemTime {
    text.parse::<Timestamp>().unwrap().into()
}

fn paused_at(workers: usize, at: &str) -> Runtime {
    let runtime = paused(workers);
    runtime.set_wall_clock(utc(at)).unwrap();
    runtime
}

/// The runs of a job. For each: the instant it was due, the time on the clock, and the number of
/// runs that were missed before it.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<(SystemTime, SystemTime, u64)>>>);

impl Runs {
    /// Starts a job on the runtime that the thread is in.
    fn job(&self, cron: &Cron) -> CronJob {
        let runs = self.0.clone();
        cron.start_with(move |occurrence| {
            let run = (occurrence.scheduled(), wall_clock(), occurrence.missed());
            runs.lock().unwrap().push(run);
        })
    }

    fn paris(&self, pattern: &str) -> CronJob {
        let cron = Cron::parse(pattern).unwrap();
        self.job(&cron.time_zone("Europe/Paris").unwrap())
    }

    fn get(&self) -> Vec<(SystemTime, SystemTime, u64)> {
        self.0.lock().unwrap().clone()
    }

    /// Checks that the job ran exactly at these instants, and that no run was missed.
    #[track_caller]
    fn were_at(&self, instants: &[&str]) {
        let expected = instants.iter().map(|at| (utc(at), utc(at), 0));
        assert_eq!(self.get(), expected.collect::<Vec<_>>());
    }
}

async fn step(to: SystemTime) {
    set_wall_clock(to).unwrap();
    advance(Duration::ZERO).await;
}

#[test]
fn two_weeks_of_weekdays_at_nine_in_paris_when_summer_time_begins() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        // Midnight in Paris, on a Monday.
        paused_at(workers, "2026-03-22T23:00:00Z").block_on(async {
            let runs = Runs::default();
            let job = runs.paris("0 9 * * MON-FRI");
            sleep(14 * DAY).await;
            runs.were_at(&[
                "2026-03-23T08:00:00Z",
                "2026-03-24T08:00:00Z",
                "2026-03-25T08:00:00Z",
                "2026-03-26T08:00:00Z",
                "2026-03-27T08:00:00Z",
                "2026-03-30T07:00:00Z",
                "2026-03-31T07:00:00Z",
                "2026-04-01T07:00:00Z",
                "2026-04-02T07:00:00Z",
                "2026-04-03T07:00:00Z",
            ]);
            assert_eq!((job.runs(), job.skipped()), (10, 0));
            assert_eq!(job.next_at(), Some(utc("2026-04-06T07:00:00Z")));
        });
    }
}

#[test]
fn two_weeks_of_weekdays_at_nine_in_paris_when_summer_time_ends() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        paused_at(workers, "2026-10-18T22:00:00Z").block_on(async {
            let runs = Runs::default();
            runs.paris("0 9 * * MON-FRI");
            sleep(14 * DAY).await;
            runs.were_at(&[
                "2026-10-19T07:00:00Z",
                "2026-10-20T07:00:00Z",
                "2026-10-21T07:00:00Z",
                "2026-10-22T07:00:00Z",
                "2026-10-23T07:00:00Z",
                "2026-10-26T08:00:00Z",
                "2026-10-27T08:00:00Z",
                "2026-10-28T08:00:00Z",
                "2026-10-29T08:00:00Z",
                "2026-10-30T08:00:00Z",
            ]);
        });
    }
}

#[test]
fn a_job_at_half_past_two_runs_once_on_days_of_clock_changes() {
    let _alarm = alarm();
    // On this day there is no half past two. The job runs at three, when clocks have been put
    // forward.
    paused_at(2, "2026-03-28T12:00:00Z").block_on(async {
        let (daily, hourly) = (Runs::default(), Runs::default());
        daily.paris("30 2 * * *");
        hourly.paris("30 1-3 * * *");
        sleep(2 * DAY).await;
        daily.were_at(&["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        hourly.were_at(&[
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z",
            "2026-03-29T23:30:00Z",
            "2026-03-30T00:30:00Z",
            "2026-03-30T01:30:00Z",
        ]);
    });
    // At the repeated hour, a daily schedule runs only the first time, and an hourly one each time.
    paused_at(2, "2026-10-24T12:00:00Z").block_on(async {
        let (daily, hourly) = (Runs::default(), Runs::default());
        daily.paris("30 2 * * *");
        hourly.paris("30 * * * *");
        sleep(DAY).await;
        daily.were_at(&["2026-10-25T00:30:00Z"]);
        assert_eq!(hourly.get().len(), 24, "one in each hour that passes");
        for (run, next) in hourly.get().iter().zip(&hourly.get()[1..]) {
            assert_eq!(run.0 + HOUR, next.0);
        }
    });
}

#[test]
fn a_step_back_runs_nothing_twice() {
    let _alarm = alarm();
    for workers in [1, 2] {
        paused_at(workers, "2026-05-04T11:00:00Z").block_on(async {
            let runs = Runs::default();
            let job = runs.job(&Cron::parse("0 12 * * *").unwrap());
            sleep(2 * HOUR).await;
            runs.were_at(&["2026-05-04T12:00:00Z"]);
            for _ in 0..3 {
                step(utc("2026-05-04T11:00:00Z")).await;
                sleep(2 * HOUR).await;
                assert_eq!(runs.get().len(), 1, "it has been run for");
            }
            // After another step back, the next run is that of the next day, once.
            step(utc("2026-05-04T00:00:00Z")).await;
            sleep(36 * HOUR - MINUTE).await;
            runs.were_at(&["2026-05-04T12:00:00Z"]);
            advance(MINUTE).await;
            assert_eq!(runs.get().len(), 2);
            assert_eq!(runs.get()[1].0, utc("2026-05-05T12:00:00Z"));
            assert_eq!((job.runs(), job.skipped()), (2, 0));
        });
    }
}

#[test]
fn a_step_forward_leaves_skipped_occurrences_to_the_policy() {
    let _alarm = alarm();
    for workers in [1, 2] {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            paused_at(workers, "2026-05-04T00:30:00Z").block_on(async {
                let runs = Runs::default();
                let job = runs.job(&Cron::parse("0 * * * *").unwrap().missed(missed));
                let landed = utc("2026-05-04T05:30:00Z");
                step(landed).await;
                let hour = |hour: u32| utc("2026-05-04T00:00:00Z") + hour * HOUR;
                let (ran, before_next): (Vec<_>, _) = match missed {
                    Missed::Skip => (vec![], 5),
                    Missed::Once => (vec![(hour(5), landed, 4)], 0),
                    Missed::All => ((1..=5).map(|i| (hour(i), landed, 0)).collect(), 0),
                };
                assert_eq!(runs.get(), ran, "{missed:?}");
                let skipped = 5 - ran.len() as u64;
                assert_eq!(job.skipped(), skipped, "{missed:?}");
                // The job continues with the next occurrence, on time.
                sleep(HOUR).await;
                assert_eq!(runs.get().last(), Some(&(hour(6), hour(6), before_next)));
                assert_eq!(job.runs(), ran.len() as u64 + 1);
            });
        }
    }
}

#[test]
fn a_step_to_within_the_grace_is_on_time() {
    let _alarm = alarm();
    for missed in [Missed::Skip, Missed::Once] {
        // Step exactly to the occurrence, and to the last instant of its grace period.
        for late in [Duration::ZERO, MINUTE] {
            paused_at(2, "2026-05-04T00:30:00Z").block_on(async {
                let runs = Runs::default();
                runs.job(&Cron::parse("0 * * * *").unwrap().missed(missed));
                let five = utc("2026-05-04T05:00:00Z");
                step(five + late).await;
                assert_eq!(runs.get(), [(five, five + late, 4)]);
            });
        }
    }
}

#[test]
fn steps_that_pass_no_occurrence_only_change_the_wait() {
    let _alarm = alarm();
    paused_at(2, "2026-05-04T00:30:00Z").block_on(async {
        let runs = Runs::default();
        let job = runs.job(&Cron::parse("0 * * * *").unwrap());
        step(utc("2026-05-04T00:59:59Z")).await;
        step(utc("2026-05-03T22:00:00Z")).await;
        step(utc("2026-05-04T00:45:00Z")).await;
        assert_eq!(runs.get(), []);
        advance(15 * MINUTE - Duration::from_nanos(1)).await;
        assert_eq!(runs.get(), []);
        advance(Duration::from_nanos(1)).await;
        runs.were_at(&["2026-05-04T01:00:00Z"]);
        job.cancel();
        sleep(DAY).await;
        assert_eq!(runs.get().len(), 1);
        assert_eq!(job.outcome(), Some(Outcome::Cancelled));
    });
}

#[test]
fn a_full_runtime_delays_no_job_and_ends_none() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(2)
        .max_timers(0)
        .start_paused(true)
        .build()
        .unwrap();
    runtime.set_wall_clock(utc("2026-05-04T00:58:30Z")).unwrap();
    let runs = Runs::default();
    let job = runtime.block_on(async {
        let job = runs.job(&Cron::parse("* * * * *").unwrap());
        sleep(2 * MINUTE).await;
        runs.were_at(&["2026-05-04T00:59:00Z", "2026-05-04T01:00:00Z"]);
        set_wall_clock(utc("2026-05-04T09:00:00Z")).unwrap();
        sleep(Duration::from_millis(1)).await;
        let (scheduled, at, _) = *runs.get().last().unwrap();
        assert_eq!(scheduled, utc("2026-05-04T09:00:00Z"));
        assert!(at <= utc("2026-05-04T09:00:01Z"));
        job
    });
    assert_eq!(job.outcome(), None);
    drop(runtime);
    assert_eq!(job.outcome(), Some(Outcome::Shutdown));
}

#[test]
fn leap_days_run_over_ten_years_of_a_paused_clock() {
    let _alarm = alarm();
    let runtime = paused_at(2, "2026-01-01T00:00:00Z");
    runtime.block_on(async {
        let runs = Runs::default();
        runs.job(&Cron::parse("0 0 29 2 *").unwrap());
        sleep(10 * 365 * DAY).await;
        runs.were_at(&["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    });
}
