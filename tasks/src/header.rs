//! The beginning of a task's allocation: what does not depend on the type of its future.

use std::{
    fmt,
    mem::{ManuallyDrop, MaybeUninit},
    ptr::NonNull,
    task::{RawWaker, RawWakerVTable, Waker},
};

use crate::{
    Runnable, TaskRef, Woken,
    state::{Released, State},
    sync::UnsafeCell,
};

/// What all threads share of a task.
///
/// `repr(C)`, since the future, whose alignment is its own, stands behind this.
#[repr(C)]
pub(crate) struct Header<M: 'static> {
    pub(crate) state: State,
    pub(crate) vtable: &'static VTable<M>,
    /// The waker of whoever polls the `Join`. The flag `AWAITER` says whose it is.
    pub(crate) awaiter: UnsafeCell<MaybeUninit<Waker>>,
    pub(crate) metadata: M,
}

/// What is done to a task whose future's type is not known, by its address.
pub(crate) struct VTable<M: 'static> {
    /// Runs the task, for the holder of its `Runnable`, whose reference this takes.
    pub(crate) run: unsafe fn(NonNull<Header<M>>),
    /// Drops the future, likewise.
    pub(crate) cancel: unsafe fn(NonNull<Header<M>>),
    /// Queues the task.
    pub(crate) schedule: fn(Runnable<M>, Woken),
    /// The place of the output.
    pub(crate) output: unsafe fn(NonNull<Header<M>>) -> *mut (),
    /// Drops the output in its place.
    pub(crate) drop_output: unsafe fn(NonNull<Header<M>>),
    /// Drops the metadata, and frees the memory.
    pub(crate) free: unsafe fn(NonNull<Header<M>>),
    /// Returns the name of the task.
    pub(crate) name: fn() -> &'static str,
    /// The functions of its wakers. A task has them at one address, by which wakers are compared.
    pub(crate) waker: RawWakerVTable,
}

/// A task, by a reference to it that is kept elsewhere.
///
/// [`Runnable`], [`TaskRef`] and [`Join`](crate::Join) all lead here.
#[repr(transparent)]
pub struct Task<M: 'static>(NonNull<Header<M>>);

// SAFETY: what is reached from any thread is the state, which is atomic, and the metadata, which is
// Send and Sync. The future and its output are reached by who owns them alone, which `Runnable` and
// `Join` see to.
unsafe impl<M: Send + Sync + 'static> Send for Task<M> {}
// SAFETY: see above.
unsafe impl<M: Send + Sync + 'static> Sync for Task<M> {}

impl<M: 'static> Task<M> {
    /// # Safety
    ///
    /// It is the address of a task, which is there for as long as this is.
    #[inline]
    pub(crate) unsafe fn at(header: NonNull<Header<M>>) -> Self {
        Self(header)
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<Header<M>> {
        self.0
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header<M> {
        // SAFETY: the task is there for as long as this is; nobody has its header mutably until it
        // is freed.
        unsafe { self.0.as_ref() }
    }

    /// What the executor keeps with the task.
    #[inline]
    pub fn metadata(&self) -> &M {
        &self.header().metadata
    }

    /// Returns a function that answers the name of the task: the type of its future, unless its
    /// [policy](crate::Policy::name) says otherwise. A task carries no name of its own, so this is
    /// one load.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &'static fn() -> &'static str {
        &self.header().vtable.name
    }

    /// Whether the task has ended: its future was dropped, and its output, if there is one, can be
    /// taken.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.header().state.has_ended()
    }

    /// Wakes the task, as its wakers do.
    #[inline]
    pub fn wake(&self) {
        if self.header().state.wake_by_ref() {
            self.schedule(Woken::Waiting);
        }
    }

    /// Cancels the task: its future is not polled again, but dropped, where the task is run the
    /// next time, or as soon as the poll is over that is under way.
    ///
    /// A task that waits is scheduled for that. One that has ended, or becomes ready in the poll
    /// that is under way, keeps its output.
    pub fn cancel(&self) {
        if self.header().state.cancel() {
            self.schedule(Woken::Waiting);
        }
    }

    /// Queues the task, by a reference that was counted for that.
    fn schedule(&self, woken: Woken) {
        // SAFETY: the state says that this thread makes the `Runnable`, and has counted it.
        let runnable = unsafe { Runnable::of(self.0) };
        (self.header().vtable.schedule)(runnable, woken);
    }

    /// Counts another reference.
    #[inline]
    pub fn reference(&self) -> TaskRef<M> {
        self.header().state.add_reference();
        // SAFETY: it was just counted.
        unsafe { TaskRef::of(self.0) }
    }

    /// Makes a waker of the task, which counts as another reference.
    #[inline]
    pub fn waker(&self) -> Waker {
        self.reference().into_waker()
    }

    /// A waker that borrows the reference by which this is reached.
    #[inline]
    pub(crate) fn lent_waker(&self) -> ManuallyDrop<Waker> {
        // SAFETY: never dropped, it gives no reference up; and what it is cloned to is counted.
        ManuallyDrop::new(unsafe { Waker::from_raw(self.raw_waker()) })
    }

    #[inline]
    pub(crate) fn raw_waker(&self) -> RawWaker {
        let address = self.0.as_ptr().cast_const().cast();
        RawWaker::new(address, &self.header().vtable.waker)
    }

    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result
    where
        M: fmt::Debug,
    {
        f.debug_struct(name)
            .field("metadata", self.metadata())
            .field("has_ended", &self.has_ended())
            .finish()
    }

    /// Goes on with a task of which something was given up.
    ///
    /// # Safety
    ///
    /// `released` is what the state has just said to this thread.
    #[inline]
    pub(crate) unsafe fn released(header: NonNull<Header<M>>, released: Released) {
        if released != Released::Shared {
            // SAFETY: as the caller says.
            unsafe { Self::released_last(header, released) };
        }
    }

    /// # Safety
    ///
    /// As for [`released`](Task::released).
    #[inline(never)]
    unsafe fn released_last(header: NonNull<Header<M>>, released: Released) {
        // SAFETY: it is there until it is freed, which this thread is to do, or to leave to others
        // by scheduling it.
        let task = unsafe { Self::at(header) };
        if released == Released::Last {
            let free = task.header().vtable.free;
            // SAFETY: this was the last of it, and it has ended.
            unsafe { free(header) };
        } else {
            task.schedule(Woken::Waiting);
        }
    }
}

impl<M: fmt::Debug + 'static> fmt::Debug for Task<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("Task", f)
    }
}
