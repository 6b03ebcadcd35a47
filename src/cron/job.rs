//! What a job does next, as a state machine without clock, thread or timer: it is told what
//! happened, and answers what there is to do.
//!
//! Its place in time is the next occurrence, which only ever moves forward: a clock that is put
//! back makes the job wait, and nothing is run again. What is due but cannot be run is kept in
//! batches, from one occurrence to another, so that years that were missed cost no memory.

use std::{collections::VecDeque, time::SystemTime};

use super::{
    policy::{Missed, Overlap, Policy},
    schedule::Schedule,
};

/// Occurrences that were missed are counted up to this many at a time, or a leap of the clock by
/// years would keep a worker busy with counting.
pub(super) const COUNTED: u64 = 1000;

/// What a run is told of itself.
///
/// Given to the callback of `start_with`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    scheduled: SystemTime,
    missed: u64,
}

impl Occurrence {
    /// When it was due, by the wall clock.
    pub fn scheduled(&self) -> SystemTime {
        self.scheduled
    }

    /// Returns how many occurrences before this one were not run, since the one that was: they
    /// passed while nobody could run them, or were dropped because a run was in progress. Of those
    /// that passed at once, no more than 1000 are counted.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Cancelled,
    Shutdown,
    /// The schedule has no more occurrences, and all have run.
    Finished,
}

/// Which runs exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// One at a time.
    Single,
    /// Beside any others.
    Free,
}

/// What there is to do.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Todo {
    /// Set the alarm, of which there is one.
    pub(super) alarm: Option<SystemTime>,
    /// Run this.
    pub(super) run: Option<(Lane, Occurrence)>,
}

/// Occurrences from one to another, both among them.
#[derive(Debug)]
struct Batch {
    first: SystemTime,
    last: SystemTime,
    /// Passed over before the first.
    missed: u64,
}

#[derive(Debug)]
pub(super) struct Job {
    schedule: Schedule,
    policy: Policy,
    /// The first occurrence that has not come due.
    next: Option<SystemTime>,
    /// What is due, and waits for the lane.
    queue: VecDeque<Batch>,
    is_single_busy: bool,
    free_runs: usize,
    /// Passed over since what was run, or queued, last.
    missed: u64,
    started: u64,
    skipped: u64,
    end: Option<End>,
}

impl Job {
    /// A job as of `now`; its alarm is for [`next`](Job::next), or there is none.
    pub(super) fn new(schedule: Schedule, policy: Policy, now: SystemTime) -> Self {
        Self {
            next: schedule.next_after(now),
            schedule,
            policy,
            queue: VecDeque::new(),
            is_single_busy: false,
            free_runs: 0,
            missed: 0,
            started: 0,
            skipped: 0,
            end: None,
        }
    }

    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The next occurrence to come due. `None` when the job is over.
    pub(super) fn next(&self) -> Option<SystemTime> {
        self.next
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    pub(super) fn running(&self) -> usize {
        self.free_runs + usize::from(self.is_single_busy)
    }

    pub(super) fn started(&self) -> u64 {
        self.started
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The alarm rang, or the clock was set: it is `now`.
    pub(super) fn wake(&mut self, now: SystemTime) -> Todo {
        let Some(first) = self.next else {
            return Todo::default();
        };
        let mut run = None;
        if first <= now {
            let last = self.last_due(first, now);
            self.next = self.schedule.next_after(last);
            run = self
                .batch(first, last, now)
                .and_then(|batch| self.admit(batch));
        }
        self.finish();
        Todo {
            alarm: self.next,
            run,
        }
    }

    /// What is to be run of occurrences that have come due.
    fn batch(&mut self, first: SystemTime, last: SystemTime, now: SystemTime) -> Option<Batch> {
        let late = now.duration_since(last).unwrap_or_default();
        match self.policy.missed {
            Missed::Skip if late > self.policy.grace => {
                self.pass_over(first, last);
                self.pass(1);
                return None;
            }
            Missed::Skip | Missed::Once => self.pass_over(first, last),
            Missed::All => {}
        }
        let first = match self.policy.missed {
            Missed::All => first,
            Missed::Skip | Missed::Once => last,
        };
        Some(Batch {
            first,
            last,
            missed: 0,
        })
    }

    /// Runs, queues or drops what has come due, by what is going on.
    fn admit(&mut self, mut batch: Batch) -> Option<(Lane, Occurrence)> {
        match self.policy.overlap {
            Overlap::Skip if self.is_single_busy => {
                self.pass_over(batch.first, batch.last);
                self.pass(1);
                return None;
            }
            Overlap::Both if batch.first == batch.last => {
                self.free_runs += 1;
                return Some((Lane::Free, self.occurrence(batch.first, None)));
            }
            _ => {}
        }
        batch.missed = std::mem::take(&mut self.missed);
        match self.queue.back_mut() {
            // One after the other, as they mostly are: one batch goes on.
            Some(back)
                if batch.missed == 0
                    && self.schedule.next_after(back.last) == Some(batch.first) =>
            {
                back.last = batch.last;
            }
            _ => self.queue.push_back(batch),
        }
        self.take()
    }

    /// The next run of the lane, if that is free and something waits.
    fn take(&mut self) -> Option<(Lane, Occurrence)> {
        if self.is_single_busy {
            return None;
        }
        let batch = self.queue.front_mut()?;
        let scheduled = batch.first;
        let missed = std::mem::take(&mut batch.missed);
        match self.schedule.next_after(scheduled) {
            Some(next) if scheduled < batch.last => batch.first = next,
            _ => drop(self.queue.pop_front()),
        }
        self.is_single_busy = true;
        Some((Lane::Single, self.occurrence(scheduled, Some(missed))))
    }

    fn occurrence(&mut self, scheduled: SystemTime, missed: Option<u64>) -> Occurrence {
        let missed = missed.unwrap_or_else(|| std::mem::take(&mut self.missed));
        Occurrence { scheduled, missed }
    }

    /// A worker has come to a run: whether it is to begin, or the job was ended meanwhile.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.end.is_none();
        self.started += u64::from(begins);
        begins
    }

    /// A run ended, by whatever way, or was not begun.
    pub(super) fn ended(&mut self, lane: Lane) -> Todo {
        match lane {
            Lane::Free => self.free_runs -= 1,
            Lane::Single => self.is_single_busy = false,
        }
        let run = match self.end {
            None => self.take(),
            Some(_) => None,
        };
        self.finish();
        Todo { alarm: None, run }
    }

    /// Ends the job: what waits is not run, what runs is not disturbed. Whether it is this call
    /// that ended it.
    pub(super) fn stop(&mut self, end: End) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.end = Some(end);
        self.next = None;
        self.queue.clear();
        true
    }

    fn finish(&mut self) {
        if self.next.is_none() && self.queue.is_empty() && self.running() == 0 {
            self.stop(End::Finished);
        }
    }

    /// The last occurrence that is not after `now`; `first` is one. By halving what is between:
    /// after a leap of the clock there may be more than can be gone through.
    fn last_due(&self, first: SystemTime, now: SystemTime) -> SystemTime {
        let mut last = first;
        let mut until = now;
        loop {
            match self.schedule.next_after(last) {
                Some(next) if next <= now => last = next,
                _ => return last,
            }
            // `last` is due; after `until` nothing is.
            while let Ok(between) = until.duration_since(last) {
                if between.as_secs() < 2 {
                    break;
                }
                let middle = last + between / 2;
                match self.schedule.next_after(middle) {
                    Some(next) if next <= now => last = next,
                    _ => until = middle,
                }
            }
        }
    }

    /// Occurrences from `first` to the one before `last` are not run.
    fn pass_over(&mut self, first: SystemTime, last: SystemTime) {
        if first < last {
            let between = self.schedule.upcoming(first).take(COUNTED as usize - 1);
            let count = 1 + between.take_while(|&next| next < last).count();
            self.pass(count as u64);
        }
    }

    fn pass(&mut self, count: u64) {
        self.missed += count;
        self.skipped += count;
    }
}
