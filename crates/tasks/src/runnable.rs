//! A task that is ready to run.

use std::{
    fmt, mem,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
};

use crate::{Task, Woken, header::Header};

/// A task that is ready to run. One exists each time the task is scheduled.
///
/// Dropping it cancels the task and drops the future at once.
#[must_use = "dropping it cancels the task"]
pub struct Runnable<M: 'static>(Task<M>);

impl<M: 'static> Runnable<M> {
    /// Creates the `Runnable` of a task.
    ///
    /// # Safety
    ///
    /// `header` is the address of a scheduled task that has no other `Runnable`. The caller passes
    /// on one counted reference to it.
    #[inline]
    pub(crate) unsafe fn of(header: NonNull<Header<M>>) -> Self {
        // SAFETY: the reference keeps the task allocated.
        Self(unsafe { Task::at(header) })
    }

    /// Polls the future, or drops it if the task was cancelled.
    ///
    /// A panic of the future is caught and becomes the output of the task.
    #[inline]
    pub fn run(self) {
        let address = self.0.address();
        let vtable = self.0.header().vtable;
        mem::forget(self);
        // SAFETY: this is the only `Runnable`. `forget` passes its reference on. The functions are
        // those of the task's wakers.
        unsafe { (vtable.run)(address, &vtable.waker) };
    }

    /// Like [`run`](Runnable::run), and calls [`Policy::traced`](crate::Policy::traced) wherever the
    /// poll clones the task's waker, as each future does that waits.
    ///
    /// The clones are ordinary wakers of the task. The waker that the poll is lent has the same
    /// [data](std::task::Waker::data) as they, but
    /// [`will_wake`](std::task::Waker::will_wake) tells it from them. So a future that keeps a
    /// waker from an earlier poll takes a new one.
    #[cold]
    pub fn run_traced(self) {
        let address = self.0.address();
        let vtable = self.0.header().vtable;
        mem::forget(self);
        // SAFETY: as in `run`.
        unsafe { (vtable.run)(address, vtable.traced) };
    }

    /// Queues the task by its [policy](crate::Policy::schedule), as if it had been woken.
    pub fn schedule(self) {
        let schedule = self.0.header().vtable.schedule;
        schedule(self, Woken::Waiting);
    }

    /// Converts the `Runnable` to an address for [`from_raw`](Runnable::from_raw).
    #[inline]
    pub fn into_raw(self) -> NonNull<()> {
        let address = self.0.address();
        mem::forget(self);
        address.cast()
    }

    /// Converts an address back to the `Runnable`.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`into_raw`](Runnable::into_raw) of a task with this type of metadata, and
    /// is used only once.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: by the contract of this function.
        unsafe { Self::of(raw.cast()) }
    }
}

impl<M: 'static> Deref for Runnable<M> {
    type Target = Task<M>;

    #[inline]
    fn deref(&self) -> &Task<M> {
        &self.0
    }
}

impl<M: 'static> Drop for Runnable<M> {
    fn drop(&mut self) {
        let cancel = self.0.header().vtable.cancel;
        // SAFETY: this is the only `Runnable`. Being dropped, it passes its reference on.
        unsafe { cancel(self.0.address()) };
    }
}

/// Panic safety: the task catches panics of its future, so no reference sees a broken state.
impl<M: 'static> UnwindSafe for Runnable<M> {}
impl<M: 'static> RefUnwindSafe for Runnable<M> {}

impl<M: fmt::Debug + 'static> fmt::Debug for Runnable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Runnable", f)
    }
}
