//! The polls of single tasks, while a reader asks for them. Otherwise no poll is timed.

use std::{collections::HashMap, mem, task::Waker};

use tourbillon_tasks::TaskRef;

use crate::{
    engine::{core::Core, local, recorder::copy::Who, shared::Shared, task_core::meta::TaskMeta},
    sys::sync::{
        Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::id::Id,
    util::lock::lock,
};

/// How many tasks a thread remembers until a reader comes. The polls of others are not counted.
const MOST: usize = 16_384;

/// The polls of one worker or helper.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    are_timed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Option<Poll>,
    over: HashMap<Id, Over>,
}

/// A poll that is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    pub(crate) task: Id,
    /// When it began, in ns.
    pub(crate) since: u64,
    /// The data of the task's wakers, as a number.
    waker: usize,
    /// The deadline of the last sleep that it has armed for its task, in ns.
    sleeps_until: Option<u64>,
}

/// The polls of a task that are over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Over {
    pub(crate) count: u64,
    /// How long they took together, in ns.
    pub(crate) took: u64,
    /// The deadline of the sleep that the last of them has armed, in ns.
    pub(crate) sleeps_until: Option<u64>,
}

/// What one thread has polled.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) who: Who,
    pub(crate) now: Option<Poll>,
    pub(crate) over: HashMap<Id, Over>,
}

impl Polls {
    pub(crate) fn are_timed(&self) -> bool {
        self.are_timed.load(Relaxed)
    }

    pub(crate) fn set_timed(&self, are_timed: bool) {
        self.are_timed.store(are_timed, Relaxed);
        if !are_timed {
            *lock(&self.state) = State::default();
        }
    }

    /// Notes that a poll of `task` begins at `now`.
    pub(crate) fn begin(&self, task: &TaskRef<TaskMeta>, now: u64) {
        lock(&self.state).now = Some(Poll {
            task: task.metadata().id(),
            since: now,
            waker: task.waker_data().addr(),
            sleeps_until: None,
        });
    }

    /// Notes that the present poll arms a sleep that is due at `deadline`, and wakes `waker`.
    fn arms(&self, waker: &Waker, deadline: u64) {
        if let Some(poll) = &mut lock(&self.state).now {
            if poll.waker == waker.data().addr() {
                poll.sleeps_until = Some(deadline);
            }
        }
    }

    /// Notes that the poll is over at `now`. A task that has ended is forgotten.
    pub(crate) fn end(&self, now: u64, has_ended: bool) {
        let mut state = lock(&self.state);
        let Some(poll) = state.now.take() else {
            return;
        };
        let task = poll.task;
        if has_ended {
            state.over.remove(&task);
        } else if state.over.len() < MOST || state.over.contains_key(&task) {
            let over = state.over.entry(task).or_default();
            over.count += 1;
            over.took += now.saturating_sub(poll.since);
            over.sleeps_until = poll.sleeps_until;
        }
    }

    /// Returns the present poll, and takes those that are over.
    fn take(&self, who: Who) -> Polled {
        let mut state = lock(&self.state);
        Polled {
            who,
            now: state.now,
            over: mem::take(&mut state.over),
        }
    }
}

/// Notes that the calling thread arms a sleep of worker `home`.
pub(crate) fn arms(home: &Core, waker: &Waker, deadline: u64) {
    local::with_local_of(&home.shared, |local| {
        let polls = local.map(|local| &local.shard.owner().track.polls);
        if let Some(polls) = polls.filter(|polls| polls.are_timed()) {
            polls.arms(waker, deadline);
        }
    });
}

impl Shared {
    /// Has all threads time each poll of a task, until each caller of this has called
    /// [`leave_polls_untimed`](Shared::leave_polls_untimed).
    pub(crate) fn time_polls(&self) {
        self.flight.times_polls.fetch_add(1, SeqCst);
        self.apply_times_polls();
    }

    /// Takes back a call of [`time_polls`](Shared::time_polls).
    pub(crate) fn leave_polls_untimed(&self) {
        self.flight.times_polls.fetch_sub(1, SeqCst);
        self.apply_times_polls();
    }

    /// Passes the setting on to all threads. Callers that meet repeat it until all agree.
    fn apply_times_polls(&self) {
        let are_timed = || self.flight.times_polls.load(SeqCst) > 0;
        let mut seen = !are_timed();
        while seen != are_timed() {
            seen = !seen;
            self.each_core(|core| core.track.time_polls(seen));
        }
    }

    /// Takes what all threads have polled since the last call, while polls are timed.
    pub(crate) fn take_polls(&self) -> Vec<Polled> {
        let mut all = Vec::new();
        self.each_core(|core| {
            let who = if core.is_helper {
                Who::Helper(core.index)
            } else {
                Who::Worker(core.index)
            };
            all.push(core.track.polls.take(who));
        });
        all
    }
}
