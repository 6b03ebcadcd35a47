//! Tasks that are ready and may be polled by one thread alone.
//!
//! Two queues: one that only this thread touches, and one for wakers on other threads. What is pushed
//! from elsewhere has to be told to the owner, which may sleep: that is the caller's to do, *after* the
//! push, by whatever the owner sleeps on. A worker looks at this queue between its announcement and its
//! sleep, as it looks at those of all (`Shard::park`); a [`LocalSet`](crate::task::local::set::LocalSet) leaves its waker
//! before it looks.

use std::{
    cell::{Cell, UnsafeCell},
    collections::VecDeque,
};

use crossbeam::{queue::SegQueue, utils::CachePadded};

use crate::sys::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How many tasks are taken between two looks at what came from other threads.
const LOOK_INTERVAL: u32 = 31;

/// How many of those are taken over at one look. Others may push as fast as this thread takes.
const LOOK_BATCH: usize = 1024;

/// The number of a thread, which no other thread of the process has or will have. Not zero.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        // Without a destructor, so that it is there to the thread's very end.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    let number = NUMBER.get();
    if number != 0 {
        return number;
    }
    let number = NEXT.fetch_add(1, Relaxed);
    NUMBER.set(number);
    number
}

/// The tasks of one thread that are ready. See the head of this file.
pub(crate) struct LocalQueue<J> {
    /// The thread whose queue this is; zero until it is bound to one.
    owner: AtomicU64,
    /// Whether there ever was a task: all that a runtime without such tasks looks at.
    used: AtomicBool,
    /// Touched by the owner's thread alone.
    own: UnsafeCell<Own<J>>,
    elsewhere: CachePadded<SegQueue<J>>,
}

struct Own<J> {
    tasks: VecDeque<J>,
    /// How many are taken until the next look at what came from elsewhere.
    look_in: u32,
}

// SAFETY: `own` is reached through `with_own` alone, by one thread: numbers of threads are not used
// twice. All else is Sync.
unsafe impl<J: Send> Sync for LocalQueue<J> {}
// SAFETY: tasks are Send; whose futures are not are polled and dropped by who takes them, which is the
// owner.
unsafe impl<J: Send> Send for LocalQueue<J> {}

/// Where a task was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "who pushed from elsewhere has to wake the owner"]
pub(crate) enum Pushed {
    /// By the owner, which finds it before it sleeps.
    Here,
    /// By another thread.
    Elsewhere,
}

impl<J> LocalQueue<J> {
    /// A queue of a thread that is yet to be started, and [binds](LocalQueue::bind) it then.
    pub(crate) fn unbound() -> Self {
        Self {
            owner: AtomicU64::new(0),
            used: AtomicBool::new(false),
            own: UnsafeCell::new(Own {
                tasks: VecDeque::new(),
                look_in: 0,
            }),
            elsewhere: CachePadded::new(SegQueue::new()),
        }
    }

    /// A queue of the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        let queue = Self::unbound();
        queue.bind();
        queue
    }

    /// Makes the queue the calling thread's, unless it is another's; true if it is the caller's.
    pub(crate) fn bind(&self) -> bool {
        let bound = self
            .owner
            .compare_exchange(0, this_thread(), Relaxed, Relaxed);
        bound.is_ok() || self.is_own()
    }

    #[inline]
    fn is_own(&self) -> bool {
        // Only this thread can have written its number.
        self.owner.load(Relaxed) == this_thread()
    }

    /// Runs `f` on what the owner alone touches; nothing, if the caller is another. `f` runs no foreign
    /// code.
    fn with_own<R>(&self, f: impl FnOnce(&mut Own<J>) -> R) -> Option<R> {
        // SAFETY: this thread is the owner, and `f` does not come back here.
        self.is_own().then(|| f(unsafe { &mut *self.own.get() }))
    }

    /// Queues a task, last.
    pub(crate) fn push(&self, task: J) -> Pushed {
        if !self.used.load(Relaxed) {
            // Who is woken for the task sees this: see `has_work`.
            self.used.store(true, Relaxed);
        }
        let mut task = Some(task);
        let pushed = self.with_own(|own| own.tasks.extend(task.take()));
        match (pushed, task) {
            (None, Some(task)) => {
                self.elsewhere.push(task);
                Pushed::Elsewhere
            }
            _ => Pushed::Here,
        }
    }

    /// The task that has waited for longest, by and large. For the owner; others find nothing.
    pub(crate) fn take(&self) -> Option<J> {
        if !self.used.load(Relaxed) {
            return None;
        }
        self.with_own(|own| {
            if own.look_in == 0 || own.tasks.is_empty() {
                own.look_in = LOOK_INTERVAL;
                let came = std::iter::from_fn(|| self.elsewhere.pop());
                own.tasks.extend(came.take(LOOK_BATCH));
            }
            own.look_in -= 1;
            own.tasks.pop_front()
        })
        .flatten()
    }

    /// Whether there ever was a task.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Whether there is a task for the calling thread, the owner.
    ///
    /// Asked behind the fence with which the owner announces that it sleeps, while who pushes from
    /// elsewhere fences between the push and the look at the announcement: one of the two sees the other.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.is_used()
            && (self.came_from_elsewhere()
                || self.with_own(|own| !own.tasks.is_empty()) == Some(true))
    }

    /// Whether something came from elsewhere that the owner has not taken over. For any thread.
    pub(crate) fn came_from_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty()
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
