//! Tasks by their addresses, where a counted reference would cost a read-modify-write.

use std::{mem::ManuallyDrop, ops::Deref, ptr::NonNull, task::Waker};

use super::TaskMeta;
use crate::runtime::TaskJob;

/// The address of a task, which keeps nothing alive.
#[derive(Clone, Copy)]
pub(super) struct TaskPointer(NonNull<()>);

// SAFETY: it is an address; who uses it says that the task is there, of which what is reached, the state
// and the metadata, is Sync.
unsafe impl Send for TaskPointer {}
// SAFETY: see above.
unsafe impl Sync for TaskPointer {}

impl TaskPointer {
    /// The address of a task, and the task again.
    #[inline]
    pub(super) fn of(task: TaskJob) -> (Self, TaskJob) {
        let raw = task.into_raw();
        // SAFETY: it is from `into_raw`, and passed once.
        (Self(raw), unsafe { TaskJob::from_raw(raw) })
    }

    /// The task as one that may be run, for what asks for a reference to it only.
    ///
    /// # Safety
    ///
    /// The task's allocation is there for as long as what is answered. It is neither taken out of its
    /// `ManuallyDrop` nor dropped.
    #[inline]
    unsafe fn as_job(self) -> ManuallyDrop<TaskJob> {
        // SAFETY: the address is from `into_raw`; never dropped, this is not a second owner of it.
        ManuallyDrop::new(unsafe { TaskJob::from_raw(self.0) })
    }

    /// A waker of the task.
    ///
    /// # Safety
    ///
    /// The task's allocation is there, by a reference or the handle, for as long as this runs.
    #[inline]
    pub(super) unsafe fn waker(self) -> Waker {
        // SAFETY: as the caller says. Making a waker counts one reference more, and no more than that.
        unsafe { self.as_job() }.waker()
    }

    /// What is known of the task.
    ///
    /// # Safety
    ///
    /// The task's allocation is there for as long as what is answered.
    #[inline]
    pub(super) unsafe fn meta(self) -> MetaPointer {
        // SAFETY: as the caller says.
        MetaPointer::of(unsafe { self.as_job() }.metadata())
    }
}

/// The address of what is known of a task, inside of its allocation.
#[derive(Clone, Copy)]
pub(super) struct MetaPointer(NonNull<TaskMeta>);

// SAFETY: it is an address; what it leads to is Send and Sync.
unsafe impl Send for MetaPointer {}
// SAFETY: see above.
unsafe impl Sync for MetaPointer {}

impl MetaPointer {
    #[inline]
    pub(super) fn of(meta: &TaskMeta) -> Self {
        Self(NonNull::from(meta))
    }

    /// What is there.
    ///
    /// # Safety
    ///
    /// The task's allocation is there for as long as what is answered.
    #[inline]
    pub(super) unsafe fn get<'a>(self) -> &'a TaskMeta {
        // SAFETY: as the caller says; the metadata is never lent mutably.
        unsafe { self.0.as_ref() }
    }
}

/// A counted reference to a task, which keeps its memory, and neither its future nor its result.
#[derive(Clone)]
pub(super) struct TaskRef {
    waker: Waker,
    meta: MetaPointer,
}

impl TaskRef {
    /// Another reference to a task.
    ///
    /// # Safety
    ///
    /// The task's allocation is there, by a reference or the handle, for as long as this runs.
    pub(super) unsafe fn to(task: TaskPointer) -> Self {
        // SAFETY: as the caller says.
        let (waker, meta) = unsafe { (task.waker(), task.meta()) };
        Self { waker, meta }
    }

    pub(super) fn wake(&self) {
        self.waker.wake_by_ref();
    }
}

impl Deref for TaskRef {
    type Target = TaskMeta;

    fn deref(&self) -> &TaskMeta {
        // SAFETY: the waker is a reference to the task, which keeps the allocation.
        unsafe { self.meta.get() }
    }
}
