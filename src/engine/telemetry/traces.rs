//! Where tasks wait. Each is polled once more, with a waker that tells of its clones.
//!
//! A future that waits clones the waker that its poll is lent. So a backtrace that is taken at the
//! clone begins at that future and has all that await it. The poll is one without a cause, which
//! each future must expect, and what the future keeps is an ordinary waker.
//!
//! The mark is no part of the task: a worker looks for its tasks here while its track says so,
//! which it checks before each job anyway.

use std::{
    collections::{HashMap, HashSet},
    fmt, mem,
    sync::{Arc, PoisonError},
    time::Duration,
};

use tourbillon_tasks::{Status, TaskRef};

use crate::{
    engine::{
        shared::Shared,
        task_core::{id::Id, meta::TaskMeta},
    },
    sys::{
        clock,
        sync::{Condvar, Mutex},
    },
    util::{contained::contained, lock::lock},
};

/// How many tasks are woken at once. Others that are ready wait for their polls.
const AT_ONCE: usize = 256;

/// How long tasks are waited for before more are woken. A task may also be polled by a worker that
/// does not trace yet. It is woken again after this time.
const PAUSE: Duration = Duration::from_millis(10);

/// Is called wherever a traced poll of this task clones its waker.
pub(crate) type See = dyn Fn(Id) + Send + Sync;

/// The tasks that are to be polled while their wakers are traced.
#[derive(Default)]
pub(crate) struct Traces {
    /// One thread traces at a time.
    turn: Mutex<()>,
    state: Mutex<State>,
    all_polled: Condvar,
}

#[derive(Default)]
struct State {
    see: Option<Arc<See>>,
    /// The tasks whose traced poll is not over, and whether it has begun.
    asked: HashMap<Id, bool>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}

impl Traces {
    /// Returns whether the poll of a task that begins now is to be traced.
    pub(crate) fn begins(&self, task: Id) -> bool {
        let mut state = lock(&self.state);
        let begun = state.asked.get_mut(&task);
        begun.is_some_and(|begun| !mem::replace(begun, true))
    }

    /// Notes that the traced poll of a task is over.
    pub(crate) fn polled(&self, task: Id) {
        let mut state = lock(&self.state);
        if state.asked.remove(&task).is_some() && state.asked.is_empty() {
            self.all_polled.notify_all();
        }
    }

    /// Tells that the traced poll of a task clones its waker here.
    pub(crate) fn waits(&self, task: Id) {
        let see = {
            let state = lock(&self.state);
            let see = state.see.clone();
            see.filter(|_| state.asked.get(&task) == Some(&true))
        };
        if let Some(see) = see {
            // It is foreign code, inside of a poll that must not fail by it.
            contained(|| see(task));
        }
    }

    /// Waits until all tasks that are asked for have been polled, for `most` at most. Returns those
    /// that have not.
    fn wait(&self, most: Duration) -> HashMap<Id, bool> {
        let state = lock(&self.state);
        if state.asked.is_empty() {
            return HashMap::new();
        }
        let waited = self.all_polled.wait_timeout(state, most);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.asked.clone()
    }
}

impl Shared {
    /// Has each of these tasks polled once within `limit`, unless it runs now, and calls `see`
    /// wherever such a poll clones the task's waker. Returns the tasks that were polled.
    pub(crate) fn trace(
        &self,
        tasks: Vec<TaskRef<TaskMeta>>,
        limit: Duration,
        see: Arc<See>,
    ) -> HashSet<Id> {
        let traces = &self.flight.traces;
        let until = clock::instant().checked_add(limit);
        let left = || until.map_or(PAUSE, |it| it.saturating_duration_since(clock::instant()));
        let _turn = lock(&traces.turn);
        lock(&traces.state).see = Some(see);
        let mut polled = HashSet::new();
        let mut unpolled = HashMap::new();
        let mut tasks = tasks.into_iter();
        let mut asked = Vec::new();
        while !left().is_zero() && (tasks.len() > 0 || !asked.is_empty()) {
            let first = asked.len();
            asked.extend(tasks.by_ref().take(AT_ONCE));
            let ids = asked[first..].iter().map(|it| (it.metadata().id(), false));
            lock(&traces.state).asked.extend(ids);
            // Each time, since helpers come and go.
            self.each_core(|core| core.track.trace(true));
            for task in &asked {
                let begun = unpolled.get(&task.metadata().id());
                if begun != Some(&true) && task.status() == Status::Waiting {
                    task.wake();
                }
            }
            unpolled = traces.wait(left().min(PAUSE));
            asked.retain(|task| {
                let id = task.metadata().id();
                if !unpolled.contains_key(&id) {
                    polled.insert(id);
                    return false;
                }
                let has_ended = task.has_ended();
                if has_ended {
                    lock(&traces.state).asked.remove(&id);
                }
                !has_ended
            });
        }
        // A poll that is traced still tells nobody from here on.
        *lock(&traces.state) = State::default();
        self.each_core(|core| core.track.trace(false));
        polled
    }
}
