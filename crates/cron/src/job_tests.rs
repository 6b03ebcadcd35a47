use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    builder::Cron,
    job::{COUNTED_MAX, End, Job, Lane, Todo},
    policy::{Missed, Overlap, Policy},
};

const OVERLAPS: [Overlap; 3] = [Overlap::Skip, Overlap::Queue, Overlap::Both];
const ALL_MISSED: [Missed; 3] = [Missed::Skip, Missed::Once, Missed::All];
const MINUTE: Duration = Duration::from_secs(60);

fn at(minute: u32, second: u64) -> SystemTime {
    UNIX_EPOCH + minute * MINUTE + Duration::from_secs(second)
}

fn number(minute: SystemTime) -> u64 {
    minute.duration_since(UNIX_EPOCH).unwrap().as_secs() / 60
}

/// A job that runs each minute from the first on, and its runs that have not ended.
struct Play {
    job: Job,
    running: Vec<(Lane, u64)>,
}

impl Play {
    fn new(overlap: Overlap, missed: Missed, grace: u64) -> Self {
        let policy = Policy {
            overlap,
            missed,
            grace: Duration::from_secs(grace),
        };
        let schedule = Cron::parse("* * * * *").unwrap().schedule();
        let job = Job::new(schedule, policy, UNIX_EPOCH);
        assert_eq!(job.next_at(), Some(at(1, 0)));
        Self {
            job,
            running: Vec::new(),
        }
    }

    /// Returns the minute of the started run, and how many were missed before it.
    fn did(&mut self, todo: Todo) -> Option<(u64, u64)> {
        let (lane, occurrence) = todo.run?;
        assert!(self.job.begin());
        let minute = number(occurrence.scheduled());
        self.running.push((lane, minute));
        assert_eq!(self.job.num_running(), self.running.len());
        Some((minute, occurrence.missed()))
    }

    fn wake(&mut self, minute: u32, second: u64) -> Option<(u64, u64)> {
        let todo = self.job.wake(at(minute, second));
        assert_eq!(todo.alarm, self.job.next_at());
        self.did(todo)
    }

    fn end(&mut self, minute: u64) -> Option<(u64, u64)> {
        let place = self.running.iter().position(|(_, run)| *run == minute);
        let (lane, _) = self.running.remove(place.expect("it is running"));
        let todo = self.job.ended(lane);
        assert_eq!(todo.alarm, None, "there is one already");
        self.did(todo)
    }
}

#[test]
fn occurrences_on_time_run_with_any_policy() {
    for overlap in OVERLAPS {
        for missed in ALL_MISSED {
            let mut play = Play::new(overlap, missed, 1);
            for minute in 1..10 {
                assert_eq!(play.wake(minute, 1), Some((minute.into(), 0)));
                assert_eq!(play.job.next_at(), Some(at(minute + 1, 0)));
                assert_eq!(play.end(minute.into()), None);
            }
            assert_eq!((play.job.started(), play.job.skipped()), (9, 0));
        }
    }
}

#[test]
fn what_comes_due_during_a_run_is_dropped_queued_or_run_beside_it() {
    for missed in ALL_MISSED {
        let mut play = Play::new(Overlap::Skip, missed, 1);
        assert_eq!(play.wake(1, 0), Some((1, 0)));
        assert_eq!(play.wake(2, 0), None);
        assert_eq!(play.wake(3, 0), None);
        assert_eq!(play.end(1), None);
        assert_eq!(play.wake(4, 0), Some((4, 2)));
        assert_eq!(play.job.skipped(), 2);

        let mut play = Play::new(Overlap::Queue, missed, 1);
        assert_eq!(play.wake(1, 0), Some((1, 0)));
        assert_eq!(play.wake(2, 0), None);
        assert_eq!(play.wake(3, 0), None);
        assert_eq!(play.end(1), Some((2, 0)));
        assert_eq!(play.wake(4, 0), None);
        assert_eq!(play.end(2), Some((3, 0)));
        assert_eq!(play.end(3), Some((4, 0)));
        assert_eq!(play.end(4), None);
        assert_eq!(play.job.skipped(), 0);

        let mut play = Play::new(Overlap::Both, missed, 1);
        assert_eq!(play.wake(1, 0), Some((1, 0)));
        assert_eq!(play.wake(2, 0), Some((2, 0)));
        assert_eq!(play.wake(3, 0), Some((3, 0)));
        assert_eq!(play.job.num_running(), 3);
        assert_eq!(play.end(2), None);
        assert_eq!(play.job.num_running(), 2);
    }
}

#[test]
fn what_was_missed_is_skipped_run_once_or_all_of_it() {
    for overlap in OVERLAPS {
        // Five minutes come due at once. The last is on time if ten seconds are.
        for missed in [Missed::Skip, Missed::Once] {
            let mut play = Play::new(overlap, missed, 10);
            assert_eq!(play.wake(5, 10), Some((5, 4)));
            assert_eq!(play.end(5), None);
            assert_eq!(play.wake(6, 0), Some((6, 0)));
        }
        let mut play = Play::new(overlap, Missed::Skip, 9);
        assert_eq!(play.wake(5, 10), None);
        assert_eq!(play.wake(6, 0), Some((6, 5)));
        let mut play = Play::new(overlap, Missed::Once, 9);
        assert_eq!(play.wake(5, 10), Some((5, 4)));

        for grace in [9, 10] {
            let mut play = Play::new(overlap, Missed::All, grace);
            assert_eq!(play.wake(5, 10), Some((1, 0)));
            for minute in 1..4 {
                assert_eq!(play.end(minute), Some((minute + 1, 0)));
            }
            // Occurrences that come due during the run follow the overlap policy.
            let beside = play.wake(6, 0);
            assert_eq!(beside.is_some(), overlap == Overlap::Both);
            assert_eq!(play.end(4), Some((5, 0)));
            let after = play.end(5);
            assert_eq!(after.is_some(), overlap == Overlap::Queue);
            let skipped = u64::from(overlap == Overlap::Skip);
            assert_eq!(play.job.skipped(), skipped);
            assert_eq!(play.job.started() + skipped, 6);
        }
    }
}

#[test]
fn occurrences_missed_during_a_run_follow_both_policies() {
    for missed in ALL_MISSED {
        let mut play = Play::new(Overlap::Skip, missed, 10);
        assert_eq!(play.wake(1, 0), Some((1, 0)));
        assert_eq!(play.wake(5, 0), None);
        assert_eq!(play.end(1), None);
        assert_eq!(play.wake(6, 0), Some((6, 4)));

        let mut play = Play::new(Overlap::Queue, missed, 10);
        assert_eq!(play.wake(1, 0), Some((1, 0)));
        assert_eq!(play.wake(5, 0), None);
        let first = if missed == Missed::All {
            (2, 0)
        } else {
            (5, 3)
        };
        assert_eq!(play.end(1), Some(first));

        let mut play = Play::new(Overlap::Both, missed, 10);
        assert_eq!(play.wake(1, 0), Some((1, 0)));
        assert_eq!(play.wake(5, 0), Some(first));
    }
}

#[test]
fn a_clock_that_is_put_back_makes_the_job_wait() {
    let mut play = Play::new(Overlap::Skip, Missed::All, 1);
    assert_eq!(play.wake(5, 0), Some((1, 0)));
    for minute in 1..5 {
        assert_eq!(play.end(minute), Some((minute + 1, 0)));
    }
    assert_eq!(play.end(5), None);
    for minute in 2..6 {
        assert_eq!(play.wake(minute, 30), None);
        assert_eq!(play.job.next_at(), Some(at(6, 0)));
    }
    assert_eq!(play.wake(6, 0), Some((6, 0)));
}

#[test]
fn an_ended_job_begins_nothing() {
    for end in [End::Cancelled, End::Shutdown] {
        for overlap in OVERLAPS {
            let mut play = Play::new(overlap, Missed::All, 1);
            assert_eq!(play.wake(3, 0), Some((1, 0)));
            assert!(play.job.stop(end));
            assert!(!play.job.stop(End::Cancelled), "it is over");
            assert!(!play.job.begin());
            assert_eq!(play.job.num_running(), 1, "the run goes on");
            assert_eq!(play.end(1), None);
            assert_eq!(play.wake(9, 0), None);
            assert_eq!(play.job.next_at(), None);
            assert_eq!(play.job.end(), Some(end));
        }
    }
}

#[test]
fn a_schedule_that_ends_finishes_the_job() {
    let last = SystemTime::from(jiff::Timestamp::MAX);
    let schedule = Cron::parse("0 0 1 12 *").unwrap().schedule();
    let year = Duration::from_secs(365 * 86_400);
    let mut job = Job::new(schedule, Policy::default(), last - year);
    let first = job.next_at().unwrap();
    let todo = job.wake(first);
    assert_eq!((todo.alarm, job.end()), (None, None));
    assert!(job.begin());
    assert_eq!(job.ended(todo.run.unwrap().0), Todo::default());
    assert_eq!(job.end(), Some(End::Finished));
}

#[test]
fn a_leap_by_years_takes_no_longer_than_one_by_minutes() {
    let begun = std::time::Instant::now();
    for missed in ALL_MISSED {
        for overlap in OVERLAPS {
            let policy = Policy {
                overlap,
                missed,
                grace: MINUTE,
            };
            let schedule = Cron::parse("* * * * * *").unwrap().schedule();
            let mut job = Job::new(schedule, policy, UNIX_EPOCH);
            let now = UNIX_EPOCH + 60 * 365 * 86_400 * Duration::from_secs(1);
            let (_, run) = job.wake(now).run.unwrap();
            let first = UNIX_EPOCH + Duration::from_secs(1);
            match missed {
                Missed::All => assert_eq!((run.scheduled(), run.missed()), (first, 0)),
                _ => assert_eq!((run.scheduled(), run.missed()), (now, COUNTED_MAX)),
            }
            assert!(job.next_at() > Some(now));
        }
    }
    assert!(begun.elapsed() < 5 * MINUTE);
}

/// A model of the job with a list of minutes instead of batches, which counts every one.
struct Model {
    policy: Policy,
    next: u64,
    queue: Vec<(u64, u64)>,
    is_busy: bool,
    missed: u64,
}

impl Model {
    fn take(&mut self) -> Option<(u64, u64)> {
        if self.is_busy || self.queue.is_empty() {
            return None;
        }
        self.is_busy = true;
        Some(self.queue.remove(0))
    }

    fn wake(&mut self, now: u64) -> Option<(u64, u64)> {
        let due: Vec<u64> = (self.next..=now / 60).collect();
        let last = *due.last()?;
        self.next = last + 1;
        let is_late = now - last * 60 > self.policy.grace.as_secs();
        let run = match self.policy.missed {
            Missed::All => due.clone(),
            Missed::Skip if is_late => vec![],
            Missed::Skip | Missed::Once => vec![last],
        };
        self.missed += (due.len() - run.len()) as u64;
        match self.policy.overlap {
            Overlap::Skip if self.is_busy => {
                self.missed += run.len() as u64;
                return None;
            }
            Overlap::Both if run.len() == 1 => {
                return Some((last, std::mem::take(&mut self.missed)));
            }
            _ => {}
        }
        for minute in run {
            self.queue.push((minute, std::mem::take(&mut self.missed)));
        }
        self.take()
    }
}

#[test]
fn any_course_of_events_goes_as_in_the_model() {
    // A generator with the same numbers in each run: xorshift.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 8) % bound
    };
    for course in 0..900 {
        let overlap = OVERLAPS[course % 3];
        let missed = ALL_MISSED[course / 3 % 3];
        let grace = [0, 5, 59, 200][below(4) as usize];
        let mut play = Play::new(overlap, missed, grace);
        let mut model = Model {
            policy: Policy {
                overlap,
                missed,
                grace: Duration::from_secs(grace),
            },
            next: 1,
            queue: Vec::new(),
            is_busy: false,
            missed: 0,
        };
        let mut now = 0;
        let mut begun = Vec::new();
        for _ in 0..100 {
            let did = match below(10) {
                0..5 => {
                    now += below(70);
                    None
                }
                5 => {
                    now += below(1500);
                    None
                }
                6 => {
                    now -= below(300).min(now);
                    None
                }
                _ if play.running.is_empty() => None,
                _ => {
                    let (lane, minute) = play.running[below(play.running.len() as u64) as usize];
                    let expected = match lane {
                        Lane::Free => None,
                        Lane::Single => {
                            model.is_busy = false;
                            model.take()
                        }
                    };
                    let did = play.end(minute);
                    assert_eq!(did, expected);
                    did
                }
            };
            begun.extend(did);
            // Alarms ring when they are due, and sometimes when they are not.
            if now >= model.next * 60 || below(5) == 0 {
                let did = play.wake(0, now);
                assert_eq!(did, model.wake(now), "{overlap:?} {missed:?} at {now}");
                begun.extend(did);
            }
            assert_eq!(play.job.next_at(), Some(at(model.next as u32, 0)));
        }
        let mut minutes: Vec<u64> = begun.iter().map(|(minute, _)| *minute).collect();
        assert!(overlap == Overlap::Both || minutes.is_sorted(), "in order");
        minutes.sort_unstable();
        minutes.dedup();
        assert_eq!(minutes.len(), begun.len(), "none is run twice");
        // Each occurrence ran, waits, was reported as missed, or will be by the next run.
        let missed: u64 = begun.iter().map(|(_, missed)| missed).sum();
        let waiting: u64 = model.queue.iter().map(|(_, missed)| 1 + missed).sum();
        let all = begun.len() as u64 + missed + waiting + model.missed;
        assert_eq!(all, model.next - 1, "none is lost");
    }
}
