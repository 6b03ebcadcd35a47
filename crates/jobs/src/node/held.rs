//! The jobs that a node holds: in timers until they are due, then in a queue.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tourbillon::{
    Handle,
    sync::Notify,
    time::Instant,
    timer::{Timer, WallTimer},
};

use crate::{
    job::Token,
    store::{Deadline, Held},
};

enum Armed {
    Monotonic(Timer),
    Wall(WallTimer),
}

impl Armed {
    fn cancel(&self) {
        match self {
            Self::Monotonic(timer) => drop(timer.cancel()),
            Self::Wall(timer) => drop(timer.cancel()),
        }
    }
}

#[derive(Default)]
struct Jobs {
    /// The session that may add jobs. Timers of earlier ones do nothing.
    session: u64,
    timers: HashMap<Token, Armed>,
    /// Each with the time since when it is here.
    due: VecDeque<(Instant, Held)>,
}

#[derive(Default)]
struct Inner {
    jobs: Mutex<Jobs>,
    count: AtomicUsize,
    /// Notified when a job is due.
    came_due: Notify,
    /// Notified when the node holds fewer jobs than before.
    left: Notify,
    /// Notified when the last session may end.
    ended: Notify,
}

/// The jobs that a node holds.
#[derive(Clone, Default)]
pub(super) struct Table(Arc<Inner>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Nothing that panics runs under the lock.
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many jobs the node holds and has not begun.
    pub(super) fn len(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    fn update_count(&self, jobs: &Jobs) {
        let count = jobs.timers.len() + jobs.due.len();
        self.0.count.store(count, Ordering::Relaxed);
    }

    /// Drops all jobs, for a new session.
    pub(super) fn clear(&self) {
        let timers = {
            let mut jobs = self.lock();
            jobs.session += 1;
            jobs.due.clear();
            let timers = std::mem::take(&mut jobs.timers);
            self.update_count(&jobs);
            timers
        };
        for timer in timers.values() {
            timer.cancel();
        }
        self.0.left.notify_one();
    }

    /// Arms the timers of jobs. `deadline` is `None` if the job is due.
    pub(super) fn add(&self, held: Vec<Held>, deadline: impl Fn(&Held) -> Option<Deadline>) {
        let handle = Handle::current();
        // Hold the lock while the timers are armed. A timer that fires at once waits for the lock,
        // and so finds itself in the table.
        let mut jobs = self.lock();
        let session = jobs.session;
        let mut is_due = false;
        for held in held {
            let Some(deadline) = deadline(&held) else {
                jobs.due.push_back((Instant::now(), held));
                is_due = true;
                continue;
            };
            let token = held.token;
            let table = self.clone();
            let fire = move || table.fire(session, held);
            let armed = match deadline {
                Deadline::Wall(time) => Armed::Wall(Timer::at_wall(time).on(&handle).start(fire)),
                Deadline::Monotonic(at) => Armed::Monotonic(handle.at(at, fire)),
            };
            jobs.timers.insert(token, armed);
        }
        self.update_count(&jobs);
        drop(jobs);
        if is_due {
            self.0.came_due.notify_one();
        }
    }

    fn fire(&self, session: u64, held: Held) {
        let mut jobs = self.lock();
        if jobs.session != session {
            return;
        }
        jobs.timers.remove(&held.token);
        jobs.due.push_back((Instant::now(), held));
        drop(jobs);
        self.0.came_due.notify_one();
    }

    /// Waits until a job is due, without taking it. Returns how many are due.
    pub(super) async fn wait_for_due(&self) -> usize {
        loop {
            let due = self.lock().due.len();
            if due > 0 {
                return due;
            }
            self.0.came_due.notified().await;
        }
    }

    /// Returns how many due jobs the node holds.
    pub(super) fn due(&self) -> usize {
        self.lock().due.len()
    }

    /// Takes at most `most` due jobs. Their payloads have at most `bytes` bytes, unless a single
    /// one has more.
    pub(super) fn take_due(&self, most: usize, bytes: usize) -> Vec<Held> {
        let mut sum = 0;
        self.take(most, |(_, held)| {
            let is_first = sum == 0;
            sum += held.size;
            is_first || sum <= bytes
        })
    }

    /// Takes at most `most` jobs that have been due and here since `time`.
    pub(super) fn take_overdue(&self, time: Instant, most: usize) -> Vec<Held> {
        self.take(most, |(since, _)| *since <= time)
    }

    /// Takes at most `most` due jobs, up to the first that does not fit.
    fn take(&self, most: usize, mut fits: impl FnMut(&(Instant, Held)) -> bool) -> Vec<Held> {
        let mut jobs = self.lock();
        let most = jobs
            .due
            .iter()
            .take(most)
            .take_while(|one| fits(one))
            .count();
        let taken = jobs.due.drain(..most).map(|(_, held)| held).collect();
        self.update_count(&jobs);
        drop(jobs);
        self.0.left.notify_one();
        taken
    }

    /// Puts due jobs back to where they were taken from, or behind the others.
    pub(super) fn put_back(&self, held: Vec<Held>, behind: bool) {
        let mut jobs = self.lock();
        let now = Instant::now();
        let held = held.into_iter().map(|held| (now, held));
        match behind {
            true => jobs.due.extend(held),
            false => held.rev().for_each(|held| jobs.due.push_front(held)),
        }
        self.update_count(&jobs);
        drop(jobs);
        self.0.came_due.notify_one();
    }

    /// Waits until the node holds fewer jobs than before.
    pub(super) async fn wait_for_room(&self) {
        self.0.left.notified().await;
    }

    /// Lets the last session end.
    pub(super) fn end(&self) {
        self.0.ended.notify_one();
    }

    /// Waits for [`end`](Self::end).
    pub(super) async fn wait_for_end(&self) {
        self.0.ended.notified().await;
    }
}
