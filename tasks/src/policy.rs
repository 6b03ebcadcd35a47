//! What an executor decides about its tasks.

use std::any::type_name;

use crate::{Runnable, Task, TaskRef};

/// When a task was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// While it waited.
    Waiting,
    /// While it was polled: it yielded, or another thread was quick.
    WhileRunning,
}

/// What an executor decides about its tasks, all of which carry a value of
/// [`Metadata`](Policy::Metadata).
///
/// A policy is a type, and has no value: what [`schedule`](Policy::schedule) has to know stands in
/// the metadata. Only that one has to be written; the others let an executor put a frame around
/// what is called in a task, and keep a list of its tasks.
///
/// Tasks of different policies have one type of [`Runnable`] if they have one type of metadata.
///
/// A method other than `schedule` that panics is taken for a panic of the future where it calls the
/// future or its destructor ([`polling`](Policy::polling), [`dropping`](Policy::dropping)), and
/// leaks the task otherwise.
pub trait Policy: 'static {
    /// What the executor keeps with each task.
    type Metadata: Send + Sync + 'static;

    /// Queues a task that was woken, or cancelled, for [`run`](Runnable::run) to be called on it.
    /// The thread that wakes the task calls this.
    fn schedule(task: Runnable<Self::Metadata>, woken: Woken);

    /// Returns the name of a task whose future is an `F`: see [`Task::name`].
    #[must_use]
    fn name<F>() -> &'static str {
        type_name::<F>()
    }

    /// Calls `poll`, which polls the future; and drops it, if it is ready or panics.
    ///
    /// Without a call the task stays as it is, and waits to be woken.
    #[inline]
    fn polling(metadata: &Self::Metadata, poll: impl FnOnce()) {
        _ = metadata;
        poll();
    }

    /// Calls `drop`, which drops the future of a task that was cancelled.
    ///
    /// Without a call the future is dropped after this.
    #[inline]
    fn dropping(metadata: &Self::Metadata, drop: impl FnOnce()) {
        _ = metadata;
        drop();
    }

    /// Calls `drop`, which drops an output that nobody takes, on the thread that ends the task, or
    /// drops its [`Join`](crate::Join).
    ///
    /// Without a call the output is dropped after this.
    #[inline]
    fn dropping_output(metadata: &Self::Metadata, drop: impl FnOnce()) {
        _ = metadata;
        drop();
    }

    /// The future was polled, and is pending. The thread that has polled calls this before the task
    /// can be run again.
    #[inline]
    fn pending(task: &Task<Self::Metadata>) {
        _ = task;
    }

    /// The future is gone, and the task is about to end: after this its `Join` is told. The thread
    /// that has dropped the future calls this, once for each task.
    ///
    /// Returns the reference that the executor has kept, if it has one, to be given up along with
    /// that of the caller.
    #[inline]
    fn ended(metadata: &Self::Metadata) -> Option<TaskRef<Self::Metadata>> {
        _ = metadata;
        None
    }

    /// The future, its destructor, or that of an output that nobody took, has panicked.
    #[inline]
    fn panicked(metadata: &Self::Metadata) {
        _ = metadata;
    }
}
