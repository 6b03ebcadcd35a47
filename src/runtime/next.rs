//! The slot for the task that a worker runs next.
//!
//! The task that was woken last runs next: what woke it is still in the cache. It stands where peers can
//! take it, which they do when its worker is stuck in the job before it. The worker itself fills and
//! empties the slot at each wake-up, and must not pay for that with a locked operation. So the fence
//! between the two is a thief's alone, who has the kernel put one into all threads (membarrier(2)):
//!
//! ```text
//! owner                                   thief
//!   busy = true                             swap(stealing, true), one at a time
//!   (for the compiler: a fence)             fence on all threads
//!   stealing? then swap, as a thief         busy? then give up: the owner is not stuck
//!   task = null                             swap(task, null)
//!   busy = false                            stealing = false
//! ```
//!
//! It is Dekker's. Either the fence meets the owner behind `busy = true`: the thief sees that, or all that
//! came before `busy = false`. Or it meets the owner before: who then sees `stealing`, or what the thief did
//! before he took it back. Filling an empty slot is a store, since nobody else fills it.

use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence},
};

use super::local::TaskJob;
use crate::sys::membarrier;

pub(super) struct NextSlot {
    task: AtomicPtr<()>,
    /// The owner is about to empty the slot without a locked operation.
    busy: AtomicBool,
    /// A thief is about to empty the slot. One at a time.
    stealing: AtomicBool,
}

impl NextSlot {
    pub(super) fn new() -> Self {
        Self {
            task: AtomicPtr::new(ptr::null_mut()),
            busy: AtomicBool::new(false),
            stealing: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.task.load(Ordering::Relaxed).is_null()
    }

    /// Fills the slot, and answers who had it.
    ///
    /// # Safety
    ///
    /// For the owner alone: one thread at a time, each after the one before it.
    #[inline]
    pub(super) unsafe fn put(&self, task: TaskJob) -> Option<TaskJob> {
        // SAFETY: the caller's.
        let former = unsafe { self.take() };
        self.task.store(task.into_raw().as_ptr(), Ordering::Release);
        former
    }

    /// Empties the slot.
    ///
    /// # Safety
    ///
    /// For the owner alone, as [`put`](NextSlot::put).
    #[inline]
    pub(super) unsafe fn take(&self) -> Option<TaskJob> {
        if self.is_empty() {
            return None;
        }
        self.busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let task = if self.stealing.load(Ordering::Acquire) {
            self.task.swap(ptr::null_mut(), Ordering::AcqRel)
        } else {
            let task = self.task.load(Ordering::Relaxed);
            self.task.store(ptr::null_mut(), Ordering::Relaxed);
            task
        };
        self.busy.store(false, Ordering::Release);
        Self::own(task)
    }

    /// Empties the slot, unless its owner, or another thief, is about to. For any thread.
    pub(super) fn steal(&self) -> Option<TaskJob> {
        if self.is_empty() || self.stealing.swap(true, Ordering::AcqRel) {
            return None;
        }
        let may = membarrier::fence_all() && !self.busy.load(Ordering::Acquire);
        let task = if may {
            self.task.swap(ptr::null_mut(), Ordering::AcqRel)
        } else {
            ptr::null_mut()
        };
        self.stealing.store(false, Ordering::Release);
        Self::own(task)
    }

    /// Empties the slot of a worker that has left.
    pub(super) fn clear(&self) -> Option<TaskJob> {
        Self::own(self.task.swap(ptr::null_mut(), Ordering::AcqRel))
    }

    fn own(task: *mut ()) -> Option<TaskJob> {
        let task = NonNull::new(task)?;
        // SAFETY: all that is ever stored here is from `into_raw`, and it was taken out by one thread: of
        // two swaps one gets it, and the owner goes without only while no thief may swap, as above.
        Some(unsafe { TaskJob::from_raw(task) })
    }
}

impl Drop for NextSlot {
    fn drop(&mut self) {
        drop(Self::own(*self.task.get_mut()));
    }
}
