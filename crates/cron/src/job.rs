//! The state machine of a job. It has no clock, thread or timer: it takes events and returns what
//! to do.
//!
//! Its position in time is the next occurrence, which only moves forward. If the clock is put back,
//! the job waits, and nothing runs again. Occurrences that are due but cannot run are kept in
//! batches, each from a first to a last one. So years of missed occurrences need no memory.

use std::{collections::VecDeque, time::SystemTime};

use crate::{
    policy::{Missed, Overlap, Policy},
    schedule::Schedule,
};

/// The maximum number of missed occurrences counted at a time. Without it, a leap of the clock by
/// years would keep a worker busy with counting.
pub(crate) const COUNTED_MAX: u64 = 1000;

/// The occurrence that a run belongs to. The callback of `start_with` gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    scheduled: SystemTime,
    missed: u64,
}

impl Occurrence {
    /// Returns the time at which it was due, by the wall clock.
    pub fn scheduled(&self) -> SystemTime {
        self.scheduled
    }

    /// Returns the number of occurrences that did not run since the last one that did. They passed
    /// while the job could not run, or were dropped because of a run in progress. If many pass at
    /// once, at most 1000 of them are counted.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Cancelled,
    Shutdown,
    /// The schedule has no more occurrences, and all runs have ended.
    Finished,
}

/// The exclusion of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// One run at a time.
    Single,
    /// Runs at the same time as others.
    Free,
}

/// The actions that follow from an event.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Todo {
    /// Arm the job's only alarm for this time.
    pub(crate) alarm: Option<SystemTime>,
    /// Start this run.
    pub(crate) run: Option<(Lane, Occurrence)>,
}

/// A sequence of occurrences, from the first to the last inclusive.
#[derive(Debug)]
struct Batch {
    first: SystemTime,
    last: SystemTime,
    /// The number of occurrences that were dropped before the first.
    missed: u64,
}

#[derive(Debug)]
pub(crate) struct Job {
    schedule: Schedule,
    policy: Policy,
    /// The first occurrence that is not due yet.
    next: Option<SystemTime>,
    /// The occurrences that are due and wait for the lane.
    queue: VecDeque<Batch>,
    is_single_busy: bool,
    free_runs: usize,
    /// The number of occurrences dropped since the last one that ran or was queued.
    missed: u64,
    started: u64,
    skipped: u64,
    end: Option<End>,
}

impl Job {
    /// Creates a job as of `now`. The caller arms the alarm for [`next`](Job::next), if there is
    /// one.
    pub(crate) fn new(schedule: Schedule, policy: Policy, now: SystemTime) -> Self {
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

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the next occurrence that will come due, or `None` if the job has ended.
    pub(crate) fn next_at(&self) -> Option<SystemTime> {
        self.next
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    pub(crate) fn num_running(&self) -> usize {
        self.free_runs + usize::from(self.is_single_busy)
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Handles an alarm, or a change of the clock, at `now`.
    pub(crate) fn wake(&mut self, now: SystemTime) -> Todo {
        let Some(first) = self.next else {
            return Todo::default();
        };
        let mut run = None;
        if first <= now {
            // The clock may have jumped, or the machine may have been suspended: take all that is
            // due at once.
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

    /// Selects the due occurrences that must run, by the policy for missed ones.
    fn batch(&mut self, first: SystemTime, last: SystemTime, now: SystemTime) -> Option<Batch> {
        let late = now.duration_since(last).unwrap_or_default();
        match self.policy.missed {
            // Even the last one is too late, so none of them runs.
            Missed::Skip if late > self.policy.grace => {
                self.skip_range(first, last);
                self.skip(1);
                return None;
            }
            Missed::Skip | Missed::Once => self.skip_range(first, last),
            Missed::All => {}
        }
        // Without `All`, only the last occurrence of the batch runs.
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

    /// Runs, queues or drops due occurrences, by the policy for overlaps.
    fn admit(&mut self, mut batch: Batch) -> Option<(Lane, Occurrence)> {
        match self.policy.overlap {
            Overlap::Skip if self.is_single_busy => {
                self.skip_range(batch.first, batch.last);
                self.skip(1);
                return None;
            }
            // A single occurrence may run beside others. Several missed ones run one after the
            // other.
            Overlap::Both if batch.first == batch.last => {
                self.free_runs += 1;
                return Some((Lane::Free, self.occurrence(batch.first, None)));
            }
            _ => {}
        }
        batch.missed = std::mem::take(&mut self.missed);
        match self.queue.back_mut() {
            // Usually the batch continues the last one: extend that instead of adding another.
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

    /// Takes the next run from the queue if the lane is free.
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

    /// Called when a worker reaches a run. Returns whether it must begin: the job may have ended.
    pub(crate) fn begin(&mut self) -> bool {
        let begins = self.end.is_none();
        self.started += u64::from(begins);
        begins
    }

    /// Called when a run ended, panicked, or did not begin.
    pub(crate) fn ended(&mut self, lane: Lane) -> Todo {
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

    /// Ends the job: waiting runs are dropped, and runs in progress continue. Returns whether this
    /// call ended it.
    pub(crate) fn stop(&mut self, end: End) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.end = Some(end);
        self.next = None;
        self.queue.clear();
        true
    }

    /// Ends the job if there is nothing left to do.
    fn finish(&mut self) {
        // Nothing is left to run, and nothing runs.
        if self.next.is_none() && self.queue.is_empty() && self.num_running() == 0 {
            self.stop(End::Finished);
        }
    }

    /// Returns the last occurrence that is not after `now`, where `first` is one. It bisects the
    /// time between, because after a leap of the clock there may be too many to visit each.
    fn last_due(&self, first: SystemTime, now: SystemTime) -> SystemTime {
        let mut last = first;
        let mut until = now;
        loop {
            match self.schedule.next_after(last) {
                Some(next) if next <= now => last = next,
                _ => return last,
            }
            // Invariant: `last` is due, and nothing after `until` is.
            // Halve the range instead of counting: years of a pattern that matches each second are
            // many steps.
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

    /// Counts the occurrences from `first` up to but excluding `last` as missed.
    fn skip_range(&mut self, first: SystemTime, last: SystemTime) {
        if first < last {
            // Count only so far: the exact number of very many is of no use, and takes long.
            let between = self.schedule.upcoming(first).take(COUNTED_MAX as usize - 1);
            let count = 1 + between.take_while(|&next| next < last).count();
            self.skip(count as u64);
        }
    }

    fn skip(&mut self, count: u64) {
        self.missed += count;
        self.skipped += count;
    }
}
