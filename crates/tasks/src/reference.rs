//! Counted references to a task. Each is one pointer.

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
/// Dropping the last reference to a waiting task without a [`Join`](crate::Join) cancels the task,
/// because nothing could wake it.
pub struct TaskRef<M: 'static>(Task<M>);

impl<M: 'static> TaskRef<M> {
    /// Creates a reference from an address.
    ///
    /// # Safety
    ///
    /// `header` is the address of a task, and the caller passes on one counted reference to it.
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

    /// Converts the reference to an address for [`from_raw`](TaskRef::from_raw). On 64-bit targets
    /// the address is aligned to eight bytes.
    #[inline]
    pub fn into_raw(self) -> NonNull<()> {
        self.into_address().cast()
    }

    /// Converts an address back to the reference.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`into_raw`](TaskRef::into_raw) of a reference to a task with this type of
    /// metadata, and is used only once.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: by the contract of this function.
        unsafe { Self::of(raw.cast()) }
    }

    /// Converts the reference to a waker.
    #[inline]
    pub fn into_waker(self) -> Waker {
        let waker = self.0.raw_waker();
        mem::forget(self);
        // SAFETY: the vtable is that of this task, and the waker takes over the reference.
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
        // SAFETY: the state has just returned `released` to this thread.
        unsafe { Task::released(self.0.address(), released) };
    }
}

/// Panic safety: the task catches panics of its future, so no reference sees a broken state.
impl<M: 'static> UnwindSafe for TaskRef<M> {}
impl<M: 'static> RefUnwindSafe for TaskRef<M> {}

impl<M: fmt::Debug + 'static> fmt::Debug for TaskRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("TaskRef", f)
    }
}
