//! The queue of ready tasks that only one thread may poll.
//!
//! It has two parts: one that only the owner's thread touches, with a list for each group, and a
//! remote queue for wakers on other threads. The owner sorts what it takes out of that. After a
//! remote push the pushing thread must wake the owner, by whatever the owner sleeps on. A worker
//! checks this queue between its announcement and its sleep, as it checks the other queues
//! (`Searchers::sleep`). A [`LocalSet`](crate::task::local::set::LocalSet) stores its waker before
//! it checks this queue.

use std::{
    cell::{Cell, UnsafeCell},
    collections::VecDeque,
};

use crossbeam::{queue::SegQueue, utils::CachePadded};

use crate::{
    engine::groups::GroupId,
    sys::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// How many tasks are taken between two checks of the remote queue.
const REMOTE_INTERVAL: u32 = 31;

/// How many tasks one such check moves at most: other threads may push as fast as the owner takes.
const REMOTE_BATCH: usize = 1024;

/// Returns the number of the calling thread. No other thread of the process ever has it. It is not
/// zero.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        // No destructor, so that it can be read until the very end of the thread.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    let number = NUMBER.get();
    if number != 0 {
        return number;
    }
    // Never given to another thread, even after this one has ended: `with_own` relies on it.
    let number = NEXT.fetch_add(1, Relaxed);
    NUMBER.set(number);
    number
}

/// A queue of ready tasks of one thread. See the head of this file.
pub(crate) struct LocalQueue<J> {
    /// The number of the owner's thread, or zero until the queue is bound to one.
    owner: AtomicU64,
    /// Whether there ever was a task. A runtime without such tasks checks nothing else.
    used: AtomicBool,
    /// Touched only by the owner's thread.
    own: UnsafeCell<Own<J>>,
    remote: CachePadded<SegQueue<J>>,
}

struct Own<J> {
    /// The tasks of the default group.
    tasks: VecDeque<J>,
    /// Those of the other groups, in the order of their numbers. There are as many lists as it
    /// takes for the groups that ever had a task here.
    others: Vec<VecDeque<J>>,
    /// How many tasks are in `others`.
    in_others: usize,
    /// How many tasks are taken before the next check of the remote queue.
    remote_check_in: u32,
}

// SAFETY: `own` is reached only through `with_own`, which only the owner's thread passes: thread
// numbers are never reused. All else is Sync.
unsafe impl<J: Send> Sync for LocalQueue<J> {}
// SAFETY: the queue owns values of type `J`, which is Send.
unsafe impl<J: Send> Send for LocalQueue<J> {}

/// A task that may be in a group.
pub(crate) trait Grouped {
    /// Returns the group of the task.
    fn group(&self) -> GroupId;
}

impl<J: Grouped> Own<J> {
    fn push(&mut self, task: J) {
        match task.group() {
            GroupId::DEFAULT => self.tasks.push_back(task),
            group => self.push_in(group, task),
        }
    }

    #[cold]
    fn push_in(&mut self, group: GroupId, task: J) {
        let lists = self.others.len().max(group.index());
        self.others.resize_with(lists, VecDeque::new);
        self.others[group.index() - 1].push_back(task);
        self.in_others += 1;
    }
}

impl<J> Own<J> {
    /// Returns how many tasks of this group there are.
    fn len_of(&self, group: GroupId) -> usize {
        match group.index().checked_sub(1) {
            None => self.tasks.len(),
            Some(other) => self.others.get(other).map_or(0, VecDeque::len),
        }
    }

    fn take_of(&mut self, group: GroupId) -> Option<J> {
        let Some(other) = group.index().checked_sub(1) else {
            return self.tasks.pop_front();
        };
        let task = self.others.get_mut(other)?.pop_front()?;
        self.in_others -= 1;
        Some(task)
    }

    fn len(&self) -> usize {
        self.tasks.len() + self.in_others
    }
}

/// Where a task was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "after a remote push the caller must wake the owner"]
pub(crate) enum Pushed {
    /// The owner pushed it, and finds it before it sleeps.
    Local,
    /// Another thread pushed it, and must wake the owner.
    Remote,
}

impl<J> LocalQueue<J> {
    /// Creates a queue for a thread that is not started yet. The thread [binds](LocalQueue::bind)
    /// it.
    pub(crate) fn unbound() -> Self {
        Self {
            owner: AtomicU64::new(0),
            used: AtomicBool::new(false),
            own: UnsafeCell::new(Own {
                tasks: VecDeque::new(),
                others: Vec::new(),
                in_others: 0,
                remote_check_in: 0,
            }),
            remote: CachePadded::new(SegQueue::new()),
        }
    }

    /// Creates a queue that is bound to the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        let queue = Self::unbound();
        queue.bind();
        queue
    }

    /// Binds the queue to the calling thread, unless it is bound. Returns whether it is now bound
    /// to the calling thread.
    pub(crate) fn bind(&self) -> bool {
        let bound = self
            .owner
            .compare_exchange(0, this_thread(), Relaxed, Relaxed);
        bound.is_ok() || self.is_own()
    }

    #[inline]
    fn is_own(&self) -> bool {
        // Relaxed is enough: only this thread can have written its own number.
        self.owner.load(Relaxed) == this_thread()
    }

    /// Runs `f` on the owner's part. Returns `None` on any other thread. `f` must run no user code.
    fn with_own<R>(&self, f: impl FnOnce(&mut Own<J>) -> R) -> Option<R> {
        // SAFETY: the calling thread is the owner, and `f` runs no user code and so does not call
        // this again.
        self.is_own().then(|| f(unsafe { &mut *self.own.get() }))
    }

    /// Queues a task at the end.
    pub(crate) fn push(&self, task: J) -> Pushed
    where
        J: Grouped,
    {
        if !self.used.load(Relaxed) {
            // A thread that is woken for the task sees this store: see `has_work`.
            self.used.store(true, Relaxed);
        }
        // Push to the owner's part if this is the owner, and otherwise to the remote queue.
        let mut task = Some(task);
        let pushed = self.with_own(|own| task.take().into_iter().for_each(|task| own.push(task)));
        match (pushed, task) {
            (None, Some(task)) => {
                self.remote.push(task);
                Pushed::Remote
            }
            _ => Pushed::Local,
        }
    }

    /// Takes the task of this group that has waited longest, approximately. Only the owner finds
    /// tasks.
    pub(crate) fn take_of(&self, group: GroupId) -> Option<J>
    where
        J: Grouped,
    {
        if !self.used.load(Relaxed) {
            return None;
        }
        self.with_own(|own| {
            // Check the remote queue regularly, so that its tasks do not wait behind tasks that the
            // owner pushes again and again.
            if own.remote_check_in == 0 || own.len_of(group) == 0 {
                own.remote_check_in = REMOTE_INTERVAL;
                let came = std::iter::from_fn(|| self.remote.pop());
                came.take(REMOTE_BATCH).for_each(|task| own.push(task));
            }
            own.remote_check_in -= 1;
            own.take_of(group)
        })
        .flatten()
    }

    /// Takes a task of any group. Only the owner finds tasks.
    pub(crate) fn take(&self) -> Option<J>
    where
        J: Grouped,
    {
        self.take_of(GroupId::DEFAULT).or_else(|| {
            // What was remote is now in these lists, but for what came meanwhile.
            let others = self.with_own(|own| own.others.len()).unwrap_or(0);
            (1..=others).find_map(|other| self.take_of(GroupId::new(other)))
        })
    }

    /// Returns whether there ever was a task.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Returns whether there is a task. Only for the owner.
    ///
    /// The owner calls it behind the fence of its announcement that it sleeps. A remote thread
    /// fences between its push and its check of the announcement. So one of the two sees the other.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.is_used() && (self.has_remote() || self.with_own(|own| own.len() > 0) == Some(true))
    }

    /// Returns whether there may be a task of another group than this one. Only for the owner.
    pub(crate) fn has_other_than(&self, group: GroupId) -> bool {
        let is_other = |own: &mut Own<J>| own.len() > own.len_of(group);
        self.is_used() && (self.has_remote() || self.with_own(is_other) == Some(true))
    }

    /// Returns how many tasks the owner has pushed or taken over from the remote queue, and has not
    /// run yet. Only for the owner.
    pub(crate) fn own_len(&self) -> usize {
        self.with_own(|own| own.len()).unwrap_or(0)
    }

    /// Returns whether the remote queue has tasks. Any thread may call it.
    pub(crate) fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn a_thread_has_one_number_and_no_other_has_it() {
        let ours = this_thread();
        assert_eq!(this_thread(), ours);
        let theirs = thread::spawn(this_thread).join().unwrap();
        assert_ne!(theirs, ours);
    }

    #[test]
    fn a_queue_is_bound_once() {
        let queue = Arc::new(LocalQueue::<()>::unbound());
        assert!(!queue.is_own());
        assert!(queue.bind() && queue.is_own() && queue.bind());
        let other = queue.clone();
        let theirs = thread::spawn(move || other.bind() || other.is_own());
        assert!(!theirs.join().unwrap());
        assert!(queue.is_own());
    }
}
