//! The polls of single tasks, while a reader asks for them. Otherwise no poll is timed.

use std::{collections::HashMap, fmt, mem, sync::Arc, task::Waker, time::Duration};

use tourbillon_tasks::TaskRef;

use crate::{
    engine::{
        core::Core,
        handle::Handle,
        local,
        recorder::copy::Thread,
        shared::Shared,
        task_core::{id::Id, meta::TaskMeta},
    },
    sys::sync::{
        Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
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
    present: Option<PresentPoll>,
    over: HashMap<Id, TaskPolls>,
}

/// A poll that is not over. See [`PollTimes`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PresentPoll {
    /// The task that is polled.
    pub task: Id,
    /// When the poll began, as the time since the runtime was built.
    pub since: Duration,
    /// The data of the task's wakers, as a number.
    waker: usize,
    /// The deadline of the last sleep that it has armed for its task.
    sleeps_until: Option<Duration>,
}

/// The polls of a task that are over. See [`PollTimes`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TaskPolls {
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub took: Duration,
    /// The deadline of the sleep that the last of them has armed, as the time since the runtime was
    /// built.
    pub sleeps_until: Option<Duration>,
}

/// What one thread of a runtime has polled. See [`PollTimes`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadPolls {
    /// The thread.
    pub thread: Thread,
    /// The poll that is not over.
    pub present: Option<PresentPoll>,
    /// The polls that are over, by task.
    pub over: HashMap<Id, TaskPolls>,
}

/// Has a runtime time each poll of a task, until it is dropped. See
/// [`Handle::time_polls`](crate::Handle::time_polls).
pub struct PollTimes {
    shared: Arc<Shared>,
}

impl Handle {
    /// Has the workers time each poll of a task, until the result is dropped. Otherwise no poll is
    /// timed: it takes two more readings of the clock for each.
    ///
    /// ```
    /// use std::{thread, time::Duration};
    /// use tourbillon::Runtime;
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = Runtime::new()?;
    /// let times = runtime.handle().time_polls();
    /// let task = runtime.spawn(async {
    ///     thread::sleep(Duration::from_millis(10));
    ///     tourbillon::task::yield_now().await;
    /// });
    /// let id = task.id();
    /// runtime.block_on(task).unwrap();
    /// for thread in times.take() {
    ///     // Nothing is known of a task that has ended meanwhile.
    ///     if let Some(polls) = thread.over.get(&id) {
    ///         println!("{:?}: {} polls in {:?}", thread.thread, polls.count, polls.took);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn time_polls(&self) -> PollTimes {
        let shared = self.shared().clone();
        shared.time_polls();
        PollTimes { shared }
    }
}

impl PollTimes {
    /// Takes what each thread has polled since the last call, or since it began to time polls. All
    /// `PollTimes` of a runtime share these times: what one takes, no other one gets.
    ///
    /// A thread remembers at most 16,384 tasks until the next call, and does not count the polls of
    /// further ones. It forgets a task that ends.
    pub fn take(&self) -> Vec<ThreadPolls> {
        self.shared.take_polls()
    }
}

impl fmt::Debug for PollTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollTimes").finish_non_exhaustive()
    }
}

impl Drop for PollTimes {
    fn drop(&mut self) {
        self.shared.leave_polls_untimed();
    }
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
        lock(&self.state).present = Some(PresentPoll {
            task: task.metadata().id(),
            since: Duration::from_nanos(now),
            waker: task.waker_data().addr(),
            sleeps_until: None,
        });
    }

    /// Notes that the present poll arms a sleep that is due at `deadline`, and wakes `waker`.
    fn arms(&self, waker: &Waker, deadline: u64) {
        if let Some(poll) = &mut lock(&self.state).present {
            if poll.waker == waker.data().addr() {
                poll.sleeps_until = Some(Duration::from_nanos(deadline));
            }
        }
    }

    /// Notes that the poll is over at `now`. A task that has ended is forgotten.
    pub(crate) fn end(&self, now: u64, has_ended: bool) {
        let mut state = lock(&self.state);
        let Some(poll) = state.present.take() else {
            return;
        };
        let task = poll.task;
        if has_ended {
            state.over.remove(&task);
        } else if state.over.len() < MOST || state.over.contains_key(&task) {
            let over = state.over.entry(task).or_default();
            over.count += 1;
            over.took += Duration::from_nanos(now).saturating_sub(poll.since);
            over.sleeps_until = poll.sleeps_until;
        }
    }

    /// Returns the present poll, and takes those that are over.
    fn take(&self, thread: Thread) -> ThreadPolls {
        let mut state = lock(&self.state);
        ThreadPolls {
            thread,
            present: state.present,
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
    fn time_polls(&self) {
        self.flight.times_polls.fetch_add(1, SeqCst);
        self.apply_times_polls();
    }

    /// Takes back a call of [`time_polls`](Shared::time_polls).
    fn leave_polls_untimed(&self) {
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
    fn take_polls(&self) -> Vec<ThreadPolls> {
        let mut all = Vec::new();
        self.each_core(|core| {
            let thread = if core.is_helper {
                Thread::Helper(core.index)
            } else {
                Thread::Worker(core.index)
            };
            all.push(core.track.polls.take(thread));
        });
        all
    }
}
