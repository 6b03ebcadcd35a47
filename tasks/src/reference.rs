//! Counted references to a task, each one pointer.

use std::{
    fmt, mem,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
    task::Waker,
};

use crate::{Task, header::Header};

/// A counted reference to a task. It keeps the memory, the metadata, and, while the task waits, the
/// future.
///
/// Dropping the last one of a task that waits, which no [`Join`](crate::Join) waits for either,
/// cancels the task: no thread could wake it any more.
pub struct TaskRef<M: 'static>(Task<M>);

impl<M: 'static> TaskRef<M> {
    /// # Safety
    ///
    /// It is the address of a task, and of a reference that was counted for this.
    #[inline]
    pub(crate) unsafe fn of(header: NonNull<Header<M>>) -> Self {
        // SAFETY: the reference keeps the task.
        Self(unsafe { Task::at(header) })
    }

    #[inline]
    pub(crate) fn into_address(self) -> NonNull<Header<M>> {
        let address = self.0.address();
        mem::forget(self);
        address
    }

    /// Returns the reference as an address, for [`from_raw`](TaskRef::from_raw). It is aligned to
    /// eight bytes where pointers have as many.
    #[inline]
    pub fn into_raw(self) -> NonNull<()> {
        self.into_address().cast()
    }

    /// Takes the reference back.
    ///
    /// # Safety
    ///
    /// `raw` is from [`into_raw`](TaskRef::into_raw) of a reference to a task with this type of
    /// metadata, and is passed once.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::of(raw.cast()) }
    }

    /// Makes the reference a waker.
    #[inline]
    pub fn into_waker(self) -> Waker {
        let waker = self.0.raw_waker();
        mem::forget(self);
        // SAFETY: the functions are those of this task, and take the reference for the waker's.
        unsafe { Waker::from_raw(waker) }
    }
}

impl<M: 'static> Deref for TaskRef<M> {
    type Target = Task<M>;

    #[inline]
    fn deref(&self) -> &Task<M> {
        &self.0
    }
}

impl<M: 'static> Clone for TaskRef<M> {
    #[inline]
    fn clone(&self) -> Self {
        self.0.reference()
    }
}

impl<M: 'static> Drop for TaskRef<M> {
    #[inline]
    fn drop(&mut self) {
        let released = self.0.header().state.release();
        // SAFETY: the state has just said so.
        unsafe { Task::released(self.0.address(), released) };
    }
}

/// A panic of the future is caught where it is polled, and stays there.
impl<M: 'static> UnwindSafe for TaskRef<M> {}
impl<M: 'static> RefUnwindSafe for TaskRef<M> {}

impl<M: fmt::Debug + 'static> fmt::Debug for TaskRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("TaskRef", f)
    }
}
