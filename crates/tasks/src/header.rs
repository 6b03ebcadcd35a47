//! The header of a task's allocation: the part that does not depend on the type of its future.

use std::{
    fmt,
    mem::{ManuallyDrop, MaybeUninit},
    ptr::NonNull,
    task::{RawWaker, RawWakerVTable, Waker},
};

use tourbillon_sync::UnsafeCell;

use crate::{
    Runnable, TaskRef, Woken,
    state::{Released, State, Status},
};

/// The part of a task that all threads share.
///
/// `repr(C)` puts it at the start of the allocation. The future, with its own alignment, follows.
#[repr(C)]
pub(crate) struct Header<M: 'static> {
    pub(crate) state: State,
    pub(crate) vtable: &'static VTable<M>,
    /// The waker of the task that polls the `Join`. The flag `AWAITER` tells which thread owns the
    /// slot.
    pub(crate) awaiter: UnsafeCell<MaybeUninit<Waker>>,
    pub(crate) metadata: M,
}

/// The operations that depend on the type of the future. They take the address of the task.
pub(crate) struct VTable<M: 'static> {
    /// Runs the task, and lends the poll a waker with these functions, which are `waker` or
    /// `traced`. Called by the owner of the `Runnable`, whose reference it consumes.
    pub(crate) run: unsafe fn(NonNull<Header<M>>, &'static RawWakerVTable),
    /// Drops the future. Called by the owner of the `Runnable`, whose reference it consumes.
    pub(crate) cancel: unsafe fn(NonNull<Header<M>>),
    /// Queues the task.
    pub(crate) schedule: fn(Runnable<M>, Woken),
    /// Returns the address of the output.
    pub(crate) output: unsafe fn(NonNull<Header<M>>) -> *mut (),
    /// Drops the output in place.
    pub(crate) drop_output: unsafe fn(NonNull<Header<M>>),
    /// Drops the metadata, and frees the memory.
    pub(crate) free: unsafe fn(NonNull<Header<M>>),
    /// Returns the name of the task.
    pub(crate) name: fn() -> &'static str,
    /// The functions of the task's wakers. Wakers compare equal if these are at one address.
    pub(crate) waker: RawWakerVTable,
    /// The functions of the waker that a [traced](Runnable::run_traced) poll is lent.
    pub(crate) traced: &'static RawWakerVTable,
}

/// The methods that all references to a task have in common.
///
/// [`Runnable`], [`TaskRef`] and [`Join`](crate::Join) dereference to it.
#[repr(transparent)]
pub struct Task<M: 'static>(NonNull<Header<M>>);

// SAFETY: any thread can reach the state, which is atomic, and the metadata, which is `Send` and
// `Sync`. Only their owner reaches the future and the output; `Runnable` and `Join` ensure this.
unsafe impl<M: Send + Sync + 'static> Send for Task<M> {}
// SAFETY: see above.
unsafe impl<M: Send + Sync + 'static> Sync for Task<M> {}

impl<M: 'static> Task<M> {
    /// Creates a view of the task at an address.
    ///
    /// # Safety
    ///
    /// `header` is the address of a task that stays allocated while the view is used.
    #[inline]
    pub(crate) unsafe fn at(header: NonNull<Header<M>>) -> Self {
        Self(header)
    }

    /// Returns a function that returns the name of the task: the type of its future, unless its
    /// [policy](crate::Policy::name) says otherwise.
    ///
    /// The task stores no name of its own, so this is one load.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &'static fn() -> &'static str {
        &self.header().vtable.name
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<Header<M>> {
        self.0
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header<M> {
        // SAFETY: the task stays allocated while this view is used, and nothing borrows its header
        // mutably until it is freed.
        unsafe { self.0.as_ref() }
    }

    /// Returns the metadata that the executor keeps with the task.
    #[inline]
    pub fn metadata(&self) -> &M {
        &self.header().metadata
    }

    /// Returns whether the task has ended: its future has been dropped, and its output, if there is
    /// one, can be taken.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.header().state.has_ended()
    }

    /// Returns what the task does at the moment. It may do something else when this returns.
    #[must_use]
    pub fn status(&self) -> Status {
        self.header().state.status()
    }

    /// Returns the [data](Waker::data) of the task's wakers. No other task has the same while this
    /// one is allocated.
    #[must_use]
    pub fn waker_data(&self) -> *const () {
        self.0.as_ptr().cast_const().cast()
    }

    /// Wakes the task, like its wakers.
    #[inline]
    pub fn wake(&self) {
        if self.header().state.wake_by_ref() {
            self.schedule(Woken::Waiting);
        }
    }

    /// Cancels the task. Its future is not polled again. It is dropped where the task runs next, or
    /// right after a poll in progress.
    ///
    /// A waiting task is scheduled for this. A task that has ended, or whose poll in progress
    /// returns ready, keeps its output.
    pub fn cancel(&self) {
        if self.header().state.cancel() {
            self.schedule(Woken::Waiting);
        }
    }

    /// Queues the task. The caller has added the reference of the `Runnable`.
    fn schedule(&self, woken: Woken) {
        // SAFETY: the state told this thread to create the `Runnable`, and has counted its
        // reference.
        let runnable = unsafe { Runnable::of(self.0) };
        (self.header().vtable.schedule)(runnable, woken);
    }

    /// Returns a new counted reference.
    #[inline]
    pub fn reference(&self) -> TaskRef<M> {
        self.header().state.add_reference();
        // SAFETY: the line above counted this reference.
        unsafe { TaskRef::of(self.0) }
    }

    /// Returns a new waker of the task. It is a counted reference.
    #[inline]
    pub fn waker(&self) -> Waker {
        self.reference().into_waker()
    }

    /// Returns a waker with these functions that borrows the caller's reference.
    ///
    /// # Safety
    ///
    /// `functions` are those of `waker` or of `traced` in the task's vtable.
    #[inline]
    pub(crate) unsafe fn lent_waker(
        &self,
        functions: &'static RawWakerVTable,
    ) -> ManuallyDrop<Waker> {
        // SAFETY: the functions take the address of this task. `ManuallyDrop` never drops the
        // waker, so it releases no reference. Its clones count their own.
        ManuallyDrop::new(unsafe { Waker::new(self.waker_data(), functions) })
    }

    #[inline]
    pub(crate) fn raw_waker(&self) -> RawWaker {
        RawWaker::new(self.waker_data(), &self.header().vtable.waker)
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

    /// Takes the next step after a release, as told by the state.
    ///
    /// # Safety
    ///
    /// `released` is what the state has just returned to this thread.
    #[inline]
    pub(crate) unsafe fn released(header: NonNull<Header<M>>, released: Released) {
        if released != Released::Shared {
            // SAFETY: by the contract of this function.
            unsafe { Self::released_last(header, released) };
        }
    }

    /// Slow path of [`released`](Task::released): frees or schedules the task.
    ///
    /// # Safety
    ///
    /// See [`released`](Task::released).
    #[inline(never)]
    unsafe fn released_last(header: NonNull<Header<M>>, released: Released) {
        // SAFETY: the task stays allocated until this thread frees it, or schedules it and thereby
        // passes it on.
        let task = unsafe { Self::at(header) };
        if released == Released::Last {
            let free = task.header().vtable.free;
            // SAFETY: the task has ended, and this thread released the last reference to it.
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
