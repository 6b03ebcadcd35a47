//! The executor's side of a task.

use std::{alloc::Layout, any::type_name};

use tourbillon_sync::{alloc, dealloc};

use crate::{Runnable, Task, TaskRef};

/// When a task was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// While it was waiting.
    Waiting,
    /// While it was being polled: it yielded, or another thread woke it.
    WhileRunning,
}

/// What was done with a waker of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakerCall {
    /// It was cloned.
    Clone,
    /// It was woken, and is gone.
    Wake,
    /// It was woken, and stays.
    WakeByRef,
    /// It is dropped.
    Drop,
}

/// The decisions of an executor about its tasks. Each task carries [`Metadata`](Policy::Metadata).
///
/// A policy is a type without values: everything that [`schedule`](Policy::schedule) needs is in
/// the metadata. Only `schedule` is required. The other methods let an executor wrap the calls of
/// user code, and keep a list of its tasks.
///
/// Tasks of different policies have the same type of [`Runnable`] if they have the same type of
/// metadata.
///
/// A panic in [`polling`](Policy::polling) or [`dropping`](Policy::dropping) counts as a panic of
/// the future. A panic in any other method but `schedule` leaks the task.
pub trait Policy: 'static {
    /// The value that the executor keeps with each task.
    type Metadata: Send + Sync + 'static;

    /// Queues a task that was woken or cancelled. The executor must then call
    /// [`run`](Runnable::run) on it. Called on the thread that wakes the task.
    fn schedule(task: Runnable<Self::Metadata>, woken: Woken);

    /// Returns the name of a task whose future is an `F`: see [`Task::name`].
    #[must_use]
    fn name<F>() -> &'static str {
        type_name::<F>()
    }

    /// Allocates memory for a task. Returns null if there is none, and the process then ends as
    /// [`handle_alloc_error`](std::alloc::handle_alloc_error) says.
    ///
    /// By default, the memory is from the global allocator.
    ///
    /// # Safety
    ///
    /// As for [`std::alloc::alloc`]: the size of the layout is not zero.
    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: by contract the size is not zero.
        unsafe { alloc(layout) }
    }

    /// Frees the memory of a task.
    ///
    /// # Safety
    ///
    /// `memory` is from [`alloc`](Policy::alloc) of this policy with the same layout, and is not
    /// used any more.
    #[inline]
    unsafe fn dealloc(memory: *mut u8, layout: Layout) {
        // SAFETY: by contract `alloc` has allocated it with this layout.
        unsafe { dealloc(memory, layout) };
    }

    /// Calls `poll`, which polls the future and drops it if it is ready or panics.
    ///
    /// If this does not call `poll`, the task stays as it is and waits to be woken.
    #[inline]
    fn polling(metadata: &Self::Metadata, poll: impl FnOnce()) {
        _ = metadata;
        poll();
    }

    /// Calls `drop`, which drops the future of a cancelled task.
    ///
    /// If this does not call `drop`, the future is dropped after it returns.
    #[inline]
    fn dropping(metadata: &Self::Metadata, drop: impl FnOnce()) {
        _ = metadata;
        drop();
    }

    /// Calls `drop`, which drops an output that no [`Join`](crate::Join) takes. Called on the
    /// thread that ends the task, or that drops the `Join`.
    ///
    /// If this does not call `drop`, the output is dropped after it returns.
    #[inline]
    fn dropping_output(metadata: &Self::Metadata, drop: impl FnOnce()) {
        _ = metadata;
        drop();
    }

    /// Called after a poll that returned pending, on the polling thread, before the task can run
    /// again.
    #[inline]
    fn pending(task: &Task<Self::Metadata>) {
        _ = task;
    }

    /// Called once per task, after its future is gone and before its `Join` is woken, on the thread
    /// that dropped the future.
    ///
    /// Returns the reference that the executor keeps to the task, if it has one. It is released
    /// together with the caller's.
    #[inline]
    fn ended(metadata: &Self::Metadata) -> Option<TaskRef<Self::Metadata>> {
        _ = metadata;
        None
    }

    /// Called when a waker of the task is called, before that has an effect. It must not panic.
    #[inline(always)]
    fn waker_called(metadata: &Self::Metadata, call: WakerCall) {
        _ = (metadata, call);
    }

    /// Called when a [traced](Runnable::run_traced) poll clones the task's waker, on the thread that
    /// clones it, before that. A backtrace has here what the task waits in. It must not panic.
    fn traced(metadata: &Self::Metadata) {
        _ = metadata;
    }

    /// Called when the future, its destructor, or the destructor of an output without a `Join`
    /// panicked.
    #[inline]
    fn panicked(metadata: &Self::Metadata) {
        _ = metadata;
    }

    /// Called in place of [`panicked`](Policy::panicked) when a poll panicked. A poll that is ready
    /// includes the destructor of the future.
    #[inline]
    fn poll_panicked(metadata: &Self::Metadata) {
        Self::panicked(metadata);
    }
}
