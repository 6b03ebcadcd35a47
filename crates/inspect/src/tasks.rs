//! The answer to `/tasks.json`: the tasks of the runtime.
//!
//! From a question on, the workers time each poll, until some seconds after the last question.

use std::{
    cmp::Reverse,
    collections::HashMap,
    mem,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde::Serialize;
use tourbillon::{
    Handle,
    flight::Thread,
    runtime::dump::{Task, TaskState},
    task::{Id, PollTimes, PresentPoll},
    time::sleep,
};
use tourbillon_sync::lock;

use crate::{
    query,
    snapshot::{Inspection, Place, millis},
};

/// The most tasks in an answer.
const SHOWN: usize = 20;
/// How many tasks an answer chooses from: looking at one takes some 100 ns.
const SEEN: usize = 20_000;
/// How long polls are timed after a question.
const TIMED_FOR: Duration = Duration::from_secs(5);
/// How often the times are read from the threads.
const READ_EACH: Duration = Duration::from_millis(250);

/// What is known of the tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskList(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the first answer was given.
    first: Option<Instant>,
    timing: Option<Timing>,
    /// The tasks of the last answer, and those that were polled shortly before it or since.
    known: HashMap<Id, Known>,
}

/// Has all threads time their polls.
#[derive(Debug)]
struct Timing {
    times: PollTimes,
    since: Instant,
    asked: Instant,
    /// The polls that were not over at the last reading, and by which thread.
    present: HashMap<Id, (Thread, PresentPoll)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// When an answer had the task first.
    seen: Option<Instant>,
    polls: u64,
    busy: Duration,
    /// When the sleep is due that the last poll has armed.
    sleeps_until: Option<Duration>,
    /// Whether the last answer did not have the task.
    is_missing: bool,
}

/// What comes first in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Busy,
    Polls,
    Age,
}

#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    at_ms: f64,
    /// How many tasks there are, how many of them are listed, and of how many the answer chose.
    alive: usize,
    listed: usize,
    seen: usize,
    /// For how long polls have been timed. `None` if they are not.
    timed_ms: Option<f64>,
    tasks: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    id: String,
    name: &'static str,
    spawned: Place,
    state: String,
    /// The worker that polls it, or the one that alone may.
    worker: Option<usize>,
    waits_for: Vec<String>,
    polls: u64,
    busy_ms: f64,
    /// How long its present poll has taken.
    poll_ms: Option<f64>,
    /// How long it is known, and whether it is older.
    age_ms: f64,
    is_older: bool,
}

/// A task, and what is known of it.
struct Seen<'a> {
    task: &'a Task,
    known: Known,
    present: Option<(Thread, PresentPoll)>,
}

impl Order {
    /// Parses the query of a URL: `order=busy`. Without one, the longest busy task comes first.
    ///
    /// # Errors
    ///
    /// Returns what is wrong.
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        match query::find(query, "order") {
            None | Some("busy") => Ok(Self::Busy),
            Some("polls") => Ok(Self::Polls),
            Some("age") => Ok(Self::Age),
            Some(other) => Err(format!("order is busy, polls or age, not {other}\n")),
        }
    }

    /// Returns what the list is sorted by, the smallest first.
    fn rank(self, seen: &Seen<'_>) -> impl Ord + use<> {
        let amount = match self {
            Self::Busy => seen.known.busy.as_nanos(),
            Self::Polls => seen.known.polls.into(),
            Self::Age => 0,
        };
        let state = match seen.task.state() {
            _ if self == Self::Age => 0,
            TaskState::Running => 0,
            TaskState::Queued => 1,
            TaskState::Waiting => 2,
        };
        (Reverse(amount), state, seen.known.seen, seen.task.id())
    }
}

impl TaskList {
    /// Has polls timed, because a client asks for tasks. If they are not timed yet, the caller
    /// runs [`tend`](Self::tend).
    #[must_use]
    pub(crate) fn ask(&self, handle: &Handle) -> bool {
        lock(&self.0).ask(handle)
    }

    /// Reads the times of polls now and then, until no client has asked for some time.
    pub(crate) async fn tend(&self) {
        loop {
            sleep(READ_EACH).await;
            let mut state = lock(&self.0);
            state.read();
            let asked = state.timing.as_ref().map(|timing| timing.asked);
            if asked.is_none_or(|asked| asked.elapsed() > TIMED_FOR) {
                return state.stop();
            }
        }
    }

    /// Answers, from what is known now.
    pub(crate) fn answer(&self, order: Order, handle: &Handle, inspection: &Inspection) -> Answer {
        // Unlocked: a task may end meanwhile, and its last reference go here. Its output is user
        // code.
        let dump = handle.dump_at_most(SEEN);
        let mut state = lock(&self.0);
        state.read();
        let now = Instant::now();
        let first = *state.first.get_or_insert(now);
        let mut seen = state.recognize(dump.tasks().iter(), now);
        let timing = state.timing.as_ref();
        let timed_ms = timing.map(|timing| millis(timing.since.elapsed()));
        drop(state);
        let uptime = handle.uptime();
        let chosen_from = seen.len();
        for seen in &mut seen {
            // A long poll counts while it goes on.
            if let Some((_, poll)) = seen.present {
                seen.known.busy += uptime.saturating_sub(poll.since);
            }
        }
        seen.sort_by_cached_key(|seen| order.rank(seen));
        seen.truncate(SHOWN);
        Answer {
            at_ms: inspection.now_ms(),
            alive: dump.num_listed() + dump.num_unlisted(),
            listed: dump.num_listed(),
            seen: chosen_from,
            timed_ms,
            tasks: seen
                .into_iter()
                .map(|seen| seen.row(first, now, uptime))
                .collect(),
        }
    }
}

impl State {
    fn ask(&mut self, handle: &Handle) -> bool {
        let now = Instant::now();
        if let Some(timing) = &mut self.timing {
            timing.asked = now;
            return false;
        }
        self.timing = Some(Timing {
            times: handle.time_polls(),
            since: now,
            asked: now,
            present: HashMap::new(),
        });
        true
    }

    fn stop(&mut self) {
        if self.timing.take().is_some() {
            // Keep only when the tasks of the last answer were first seen. The others may be many,
            // and may have ended.
            self.known.retain(|_, known| {
                let seen = known.seen;
                *known = Known {
                    seen,
                    ..Known::default()
                };
                seen.is_some()
            });
            self.known.shrink_to_fit();
        }
    }

    /// Reads what was polled since the last reading.
    fn read(&mut self) {
        let Some(timing) = &mut self.timing else {
            return;
        };
        timing.present.clear();
        for polled in timing.times.take() {
            if let Some(poll) = polled.present {
                timing.present.insert(poll.task, (polled.thread, poll));
            }
            for (task, over) in polled.over {
                let known = self.known.entry(task).or_default();
                known.polls += over.count;
                known.busy += over.took;
                known.sleeps_until = over.sleeps_until;
            }
        }
    }

    /// Returns tasks with what is known of them. Forgets those that two answers in a row have not
    /// had: a task that was spawned after the caller made its list may have been polled already.
    fn recognize<'a>(
        &mut self,
        tasks: impl Iterator<Item = &'a Task>,
        now: Instant,
    ) -> Vec<Seen<'a>> {
        let mut before = mem::take(&mut self.known);
        let present = self.timing.as_ref().map(|timing| &timing.present);
        let tasks = tasks.map(|task| {
            let mut known = before.remove(&task.id()).unwrap_or_default();
            known.seen.get_or_insert(now);
            known.is_missing = false;
            self.known.insert(task.id(), known);
            let present = present.and_then(|present| present.get(&task.id()));
            Seen {
                known,
                present: present.copied(),
                task,
            }
        });
        let seen = tasks.collect();
        before.retain(|_, known| !mem::replace(&mut known.is_missing, true));
        self.known.extend(before);
        seen
    }
}

impl Seen<'_> {
    /// Returns the row of the task. `first` is when the first answer was given.
    fn row(self, first: Instant, now: Instant, uptime: Duration) -> Row {
        let Self {
            task,
            known,
            present,
        } = self;
        let polled_by = present.and_then(|(thread, _)| match thread {
            Thread::Worker(worker) => Some(worker),
            _ => None,
        });
        let mut waits_for: Vec<_> = task.waits_for().iter().map(ToString::to_string).collect();
        let left = known.sleeps_until.and_then(|at| at.checked_sub(uptime));
        if let Some(left) = left.filter(|_| task.state() == TaskState::Waiting) {
            waits_for.push(format!("a sleep of {left:.1?} more"));
        }
        let seen = known.seen.unwrap_or(now);
        Row {
            id: task.id().to_string(),
            name: task.name(),
            spawned: Place(task.spawned_at()),
            state: task.state().to_string(),
            worker: polled_by.or(task.pinned_to()),
            waits_for,
            polls: known.polls,
            busy_ms: millis(known.busy),
            poll_ms: present.map(|(_, poll)| millis(uptime.saturating_sub(poll.since))),
            age_ms: millis(now.saturating_duration_since(seen)),
            is_older: seen == first,
        }
    }
}

impl Answer {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use tourbillon::runtime::Builder;

    use super::*;

    #[test]
    fn a_task_is_forgotten_when_two_answers_have_not_had_it() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let id = runtime.spawn(async {}).id();
        let known = Known {
            polls: 7,
            ..Known::default()
        };
        let mut state = State::default();
        state.known.insert(id, known);
        assert!(state.recognize([].iter(), Instant::now()).is_empty());
        assert_eq!(
            state.known[&id].polls, 7,
            "it may have been spawned meanwhile"
        );
        assert!(state.recognize([].iter(), Instant::now()).is_empty());
        assert!(state.known.is_empty());
    }
}
