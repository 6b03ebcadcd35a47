//! Tasks by their addresses, where a counted reference would cost a read-modify-write.

use std::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Waker,
};

use super::TaskMeta;
use crate::runtime::TaskJob;

/// How far the metadata of a task is from its address. The same for all: of the task's types this
/// depends on that of the metadata alone, since who asks for it knows no other. Zero until one was made.
static META: AtomicUsize = AtomicUsize::new(0);

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
        let meta = MetaPointer::of(task.metadata());
        let raw = task.into_raw();
        let offset = meta.0.addr().get() - raw.addr().get();
        if META.load(Relaxed) != offset {
            META.store(offset, Relaxed);
        }
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

/// A counted reference to a task that takes eight bytes. Dropped, it is not given up.
pub(super) struct Counted(TaskPointer);

impl Counted {
    /// The reference that this waker of a task is, which has this metadata.
    pub(super) fn of(waker: Waker, meta: MetaPointer) -> Self {
        // What async-task's wakers carry is the address of the task. It does not say so: hence the look.
        let address = waker.data().cast_mut();
        let is_task = address.addr() + META.load(Relaxed) == meta.0.addr().get();
        assert!(is_task, "a waker carries the address of its task");
        let raw = NonNull::new(address).expect("a task has an address");
        let _counted = ManuallyDrop::new(waker);
        Self(TaskPointer(raw))
    }

    /// The reference as an address, which is that of the task.
    pub(super) fn into_raw(self) -> NonNull<()> {
        self.0.0
    }

    /// The reference again.
    ///
    /// # Safety
    ///
    /// `raw` is from [`into_raw`](Counted::into_raw), and the reference has not been given up since.
    pub(super) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(TaskPointer(raw))
    }

    /// A waker of the task.
    pub(super) fn waker(&self) -> Waker {
        // SAFETY: this is a reference to it.
        unsafe { self.0.waker() }
    }

    /// Gives the reference up.
    pub(super) fn release(self) {
        // The other waker of the two keeps the task while this goes.
        let waker = self.waker();
        // SAFETY: it is a waker of this task.
        unsafe { self.release_as(&waker) };
    }

    /// The same, by a waker of the task that there is anyhow: that spares one to be counted.
    ///
    /// # Safety
    ///
    /// It is a waker of this task.
    #[inline]
    pub(super) unsafe fn release_as(self, waker: &Waker) {
        // SAFETY: the two parts are those of a waker of this task, and what is dropped is the reference
        // that this is.
        drop(unsafe { Waker::new(waker.data(), waker.vtable()) });
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
