//! A task that is to be run.

use std::{
    fmt, mem,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
};

use crate::{Task, Woken, header::Header};

/// A task that was woken and is to be run: there is one for each time that a task is scheduled.
///
/// Dropping it cancels the task, and drops the future there and then.
#[must_use = "dropping it cancels the task"]
pub struct Runnable<M: 'static>(Task<M>);

impl<M: 'static> Runnable<M> {
    /// # Safety
    ///
    /// It is the address of a task that is scheduled, of which there is no other `Runnable`, and of
    /// a reference that was counted for this.
    #[inline]
    pub(crate) unsafe fn of(header: NonNull<Header<M>>) -> Self {
        // SAFETY: the reference keeps the task.
        Self(unsafe { Task::at(header) })
    }

    /// Polls the future, or drops it if the task was cancelled.
    ///
    /// A panic of the future is caught, and is the output of the task.
    #[inline]
    pub fn run(self) {
        let address = self.0.address();
        let run = self.0.header().vtable.run;
        mem::forget(self);
        // SAFETY: this was the `Runnable`, and its reference is passed on.
        unsafe { run(address) };
    }

    /// Queues the task by its own [policy](crate::Policy::schedule), as when it is woken.
    pub fn schedule(self) {
        let schedule = self.0.header().vtable.schedule;
        schedule(self, Woken::Waiting);
    }

    /// Returns the task as an address, for [`from_raw`](Runnable::from_raw).
    #[inline]
    pub fn into_raw(self) -> NonNull<()> {
        let address = self.0.address();
        mem::forget(self);
        address.cast()
    }

    /// Takes the task back.
    ///
    /// # Safety
    ///
    /// `raw` is from [`into_raw`](Runnable::into_raw) of a task with this type of metadata, and is
    /// passed once.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: as the caller says.
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
        // SAFETY: this is the `Runnable`, and its reference is passed on.
        unsafe { cancel(self.0.address()) };
    }
}

/// A panic of the future is caught where it is polled, and stays there.
impl<M: 'static> UnwindSafe for Runnable<M> {}
impl<M: 'static> RefUnwindSafe for Runnable<M> {}

impl<M: fmt::Debug + 'static> fmt::Debug for Runnable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Runnable", f)
    }
}
