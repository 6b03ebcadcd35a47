//! The stalls of a snapshot, each once, and their stacks.

use std::{cmp::Reverse, collections::HashMap, sync::Arc, time::Duration};

use tourbillon::{
    flight::{Event, Snapshot},
    metrics::JobName,
};

use crate::{Cause, LateTimer, nanos};

/// A job that held its worker too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) number: u64,
    pub(crate) worker: usize,
    /// When it was reported last, in ns: the job was over then, or still ran.
    pub(crate) at: u64,
    pub(crate) is_running: bool,
    /// For how long the job had run by then, in ns.
    pub(crate) elapsed: u64,
    /// `None` if it is not known which of several jobs it was.
    pub(crate) job: Option<JobName>,
}

/// Returns the stalls by worker and time. Of one that was reported when it was seen and when it
/// ended, this is the end.
pub(crate) fn stalls(snapshot: &Snapshot) -> Vec<Stalled> {
    let events = snapshot.tracks.iter().flat_map(|track| &track.events);
    let reports = events.filter_map(|&(at, event)| match event {
        Event::Stalled {
            number,
            worker,
            is_running,
            elapsed,
            job,
        } => Some(Stalled {
            number,
            worker,
            at,
            is_running,
            elapsed,
            job,
        }),
        _ => None,
    });
    let mut stalls: Vec<Stalled> = reports.collect();
    // The end is behind the moment at which it was seen.
    stalls.sort_by_key(|it| (it.worker, it.number, Reverse(it.at)));
    stalls.dedup_by_key(|it| (it.worker, it.number));
    stalls.sort_by_key(|it| (it.worker, it.at));
    stalls
}

/// Equal stacks of one job that stalled, with how often there was one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackTotal {
    /// A line for each function, innermost first.
    pub stack: Arc<str>,
    /// The job. `None` if it is not known which of several jobs it was.
    pub job: Option<JobName>,
    /// How many times a job had this stack.
    pub times: usize,
    /// The longest of the stalls that had it.
    pub worst: Duration,
}

/// Returns the stacks of the stalls in a snapshot. Equal ones of one job are one row. The one with
/// the longest stall comes first.
pub fn stacks(snapshot: &Snapshot) -> Vec<StackTotal> {
    Stacks::new(snapshot).rows
}

/// Returns the line of a stack in which the user's own code is: of the innermost function that is
/// not of the standard library, of a library in C, or of the kernel. If there is none, it is the
/// first.
///
/// ```
/// let stack = "[futex in futex_wait_queue]\nsyscall\nstd::wait at m.rs:1\nshop::sum at a.rs:7";
/// assert_eq!(tourbillon_flight::own_line(stack.lines()), Some("shop::sum at a.rs:7"));
/// ```
pub fn own_line<'a>(stack: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut lines = stack.into_iter().peekable();
    let first = lines.peek().copied();
    let is_own = |line: &&str| {
        let name = line.trim_start_matches(['<', '&', '(']);
        let libraries = ["std::", "core::", "alloc::", "["];
        let is_of_std = libraries.iter().any(|library| name.starts_with(library));
        !is_of_std && name.split(" at ").next().unwrap_or(name).contains("::")
    };
    lines.find(is_own).or(first)
}

/// The stacks of a snapshot, and which stall had which.
#[derive(Debug)]
pub(crate) struct Stacks {
    pub(crate) rows: Vec<StackTotal>,
    /// The stalls that have stacks, each with the places in `rows`, oldest first.
    stalls: Vec<(Stalled, Vec<usize>)>,
}

impl Stacks {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let mut of: HashMap<u64, Vec<&Arc<str>>> = HashMap::new();
        for (number, stack) in &snapshot.stacks {
            of.entry(*number).or_default().push(stack);
        }
        let mut stalls = stalls(snapshot);
        stalls.retain(|stall| of.contains_key(&stall.number));
        stalls.sort_by_key(|stall| Reverse(stall.elapsed));
        let (mut rows, mut places) = (Vec::new(), HashMap::new());
        let with_rows = stalls.into_iter().map(|stall| {
            let name = stall
                .job
                .map(|job| (job.label, job.name, job.group, job.spawned));
            let place = |stack: &&Arc<str>| {
                let place = *places
                    .entry((name, Arc::clone(stack)))
                    .or_insert(rows.len());
                if place == rows.len() {
                    rows.push(StackTotal {
                        stack: Arc::clone(stack),
                        job: stall.job,
                        times: 0,
                        // The longest stall comes first.
                        worst: Duration::from_nanos(stall.elapsed),
                    });
                }
                rows[place].times += 1;
                place
            };
            (stall, of[&stall.number].iter().map(place).collect())
        });
        let stalls = with_rows.collect();
        Self { rows, stalls }
    }

    /// Returns the places of the stacks of a stall, oldest first.
    pub(crate) fn of(&self, number: u64) -> &[usize] {
        let found = self.stalls.iter().find(|(stall, _)| stall.number == number);
        found.map_or(&[], |(_, places)| places)
    }

    /// Returns for each span of a late timer the place of the stack of the job that it waited for,
    /// if there is one.
    pub(crate) fn places(&self, timer: &LateTimer) -> Vec<Option<usize>> {
        let mut from = nanos(timer.deadline);
        let spans = timer.spans.iter().map(|span| {
            let to = from + nanos(span.length);
            let began = std::mem::replace(&mut from, to);
            let is_stuck = matches!(span.cause, Cause::StuckInJob(_));
            is_stuck
                .then(|| self.between(span.worker, began, to))
                .flatten()
        });
        spans.collect()
    }

    /// Returns the place of the stack that a worker had last in a stall between two moments, in ns.
    fn between(&self, worker: Option<usize>, from: u64, to: u64) -> Option<usize> {
        let is_it = |stall: &Stalled| {
            let began = stall.at.saturating_sub(stall.elapsed);
            Some(stall.worker) == worker && began < to && from < stall.at
        };
        let found = self.stalls.iter().find(|(stall, _)| is_it(stall));
        found.and_then(|(_, places)| places.last().copied())
    }
}

#[cfg(test)]
mod tests {
    use tourbillon::flight::{Thread, Track};

    use super::*;

    fn stalled(
        at: u64,
        number: u64,
        worker: usize,
        is_running: bool,
        elapsed: u64,
    ) -> (u64, Event) {
        let event = Event::Stalled {
            number,
            worker,
            is_running,
            elapsed,
            job: Some(JobName::new("slow", None)),
        };
        (at, event)
    }

    fn snapshot() -> Snapshot {
        let track = |thread, events: &[_]| Track::new(thread, events.to_vec());
        let mut snapshot = Snapshot::default();
        snapshot.tracks = vec![
            // Another stall, of which no peer saw the job.
            track(
                Thread::Worker(0),
                &[stalled(80, 1, 0, false, 70), stalled(200, 3, 0, false, 50)],
            ),
            track(
                Thread::Worker(1),
                &[stalled(20, 1, 0, true, 10), stalled(190, 2, 2, true, 10)],
            ),
        ];
        snapshot
    }

    #[test]
    fn a_stall_that_was_reported_twice_is_there_once() {
        let found = stalls(&snapshot());
        let found = found.iter().map(|it| (it.worker, it.at, it.is_running));
        let expected = [(0, 80, false), (0, 200, false), (2, 190, true)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn equal_stacks_are_one_row_and_a_stall_finds_its_own() {
        let mut snapshot = snapshot();
        let texts = [
            (1, "a"),
            (1, "b"),
            (1, "b"),
            (3, "b"),
            (7, "of an old stall"),
        ];
        snapshot.stacks = texts.map(|(number, text)| (number, text.into())).to_vec();
        let stacks = Stacks::new(&snapshot);
        let rows = stacks.rows.iter();
        let rows: Vec<_> = rows
            .map(|it| (&*it.stack, it.times, it.worst.as_nanos()))
            .collect();
        assert_eq!(rows, [("a", 1, 70), ("b", 3, 70)]);
        assert_eq!((stacks.of(1), stacks.of(3)), (&[0, 1, 1][..], &[1][..]));
        assert!(stacks.of(2).is_empty());
        assert_eq!(stacks.between(Some(0), 60, 90), Some(1));
        assert_eq!(stacks.between(Some(0), 80, 150), None, "it is over");
        assert_eq!(stacks.between(Some(2), 60, 90), None, "another worker");
    }
}
