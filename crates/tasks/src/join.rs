//! The handle that waits for the output of a task.

use std::{
    fmt,
    marker::PhantomData,
    mem,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
    task::{Context, Poll, Waker},
};

use tourbillon_sync::foreign::contained;

use crate::{
    Panic, Task,
    header::Header,
    state::{Detached, Joined},
};

/// The right to the output of a task. Each task has one.
///
/// Dropping it detaches the task, which continues to run. The output is then dropped by the thread
/// that ends the task. If the task has ended already, dropping the `Join` drops the output.
#[must_use = "dropping it detaches the task"]
pub struct Join<T, M: 'static> {
    task: Task<M>,
    /// Dropping the `Join` may drop a `T`.
    _output: PhantomData<T>,
}

// SAFETY: the owner can take or drop the output, which is `Send`. For the rest see `Task`.
unsafe impl<T: Send, M: Send + Sync + 'static> Send for Join<T, M> {}
// SAFETY: a shared reference gives no access to the output.
unsafe impl<T, M: Send + Sync + 'static> Sync for Join<T, M> {}

/// Nothing in a `Join` is pinned: the future is on the heap.
impl<T, M: 'static> Unpin for Join<T, M> {}

impl<T, M: 'static> Join<T, M> {
    /// Creates the `Join` of a task.
    ///
    /// # Safety
    ///
    /// `header` is the address of a task with outputs of type `T` that has no other `Join`.
    #[inline]
    pub(crate) unsafe fn of(header: NonNull<Header<M>>) -> Self {
        // SAFETY: the flag `HANDLE` keeps the task allocated.
        let task = unsafe { Task::at(header) };
        let _output = PhantomData;
        Self { task, _output }
    }

    /// Returns ready when the task has ended. Until then, stores the waker of `cx` in place of an
    /// earlier one.
    pub fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let header = self.task.header();
        let has_awaiter = match header.state.joined() {
            Joined::Ended { .. } => return Poll::Ready(()),
            Joined::Alive { has_awaiter } => has_awaiter,
        };
        if has_awaiter {
            // SAFETY: only this `Join` writes the slot, and the flag tells that it has. The thread
            // that ends the task may take the waker out meanwhile, which only reads the bytes
            // compared here.
            let is_there = header
                .awaiter
                .with(|slot| unsafe { (*slot).assume_init_ref() }.will_wake(cx.waker()));
            if is_there {
                return Poll::Pending;
            }
        }
        // Wakers are user code: clone before any change, since it may panic.
        let waker = cx.waker().clone();
        // Take the slot back before writing to it. On failure the ending thread owns it, and the
        // task has ended.
        if has_awaiter && !header.state.take_awaiter() {
            return Poll::Ready(());
        }
        // SAFETY: `AWAITER` is not set, so the slot belongs to this `Join`; the old waker is still
        // in it.
        let old = has_awaiter.then(|| unsafe { self.take() });
        header.awaiter.with_mut(|slot| {
            // SAFETY: see above.
            unsafe { (*slot).write(waker) };
        });
        // Publish the waker. From here on, the thread that ends the task wakes it.
        if header.state.give_awaiter() {
            drop(old);
            return Poll::Pending;
        }
        // The task ended before the waker was published, so nothing will take it.
        // SAFETY: `AWAITER` was not set when the task ended, so the slot still belongs to this
        // `Join`.
        let waker = unsafe { self.take() };
        drop((old, waker));
        Poll::Ready(())
    }

    /// Takes the output of a task that has [ended](Task::has_ended), or its panic.
    ///
    /// Returns `None` if the task was cancelled and so has no output. Also returns `None` if the
    /// task has not ended, and detaches it.
    #[inline]
    pub fn into_output(self) -> Option<Result<T, Panic>> {
        let Joined::Ended { has_output } = self.task.header().state.joined() else {
            return None;
        };
        let address = self.task.address();
        let output = has_output.then(|| {
            let output = self.task.header().vtable.output;
            // SAFETY: the task has ended, its output has this type, and it belongs to this `Join`.
            // It is read once, because `self` is forgotten below.
            unsafe { output(address).cast::<Result<T, Panic>>().read() }
        });
        // Without the destructor of the `Join`, which would drop the output again.
        mem::forget(self);
        // SAFETY: `HANDLE` keeps the task allocated until this call. The output has been taken.
        unsafe { Self::release(address, has_output) };
        output
    }

    /// Releases the `Join` of a task that has ended.
    ///
    /// # Safety
    ///
    /// `address` is that of the task of a `Join` that is neither used nor dropped afterwards. The
    /// output, if there was one, has been taken or dropped.
    #[inline]
    unsafe fn release(address: NonNull<Header<M>>, had_output: bool) {
        // SAFETY: the flag `HANDLE` keeps the task allocated.
        let released = unsafe { address.as_ref() }.state.release_join(had_output);
        // SAFETY: the state has just returned `released` to this thread.
        unsafe { Task::released(address, released) };
    }

    /// Takes the waker out of the slot.
    ///
    /// # Safety
    ///
    /// The slot belongs to this `Join` and holds a waker, which is taken only once.
    unsafe fn take(&self) -> Waker {
        let slot = &self.task.header().awaiter;
        // SAFETY: by the contract of this function.
        slot.with_mut(|slot| unsafe { (*slot).assume_init_read() })
    }
}

impl<T, M: 'static> Deref for Join<T, M> {
    type Target = Task<M>;

    #[inline]
    fn deref(&self) -> &Task<M> {
        &self.task
    }
}

impl<T, M: 'static> Drop for Join<T, M> {
    #[inline]
    fn drop(&mut self) {
        let address = self.task.address();
        loop {
            match self.task.header().state.detach() {
                Detached::Done(released) => {
                    // SAFETY: the state has just returned `released` to this thread.
                    return unsafe { Task::released(address, released) };
                }
                Detached::TakeAwaiter => {
                    // SAFETY: the state gave the slot, with a waker in it, to this `Join`.
                    let waker = unsafe { self.take() };
                    // Wakers are user code. Catch a panic: this is a destructor.
                    contained(|| drop(waker));
                }
                Detached::Ended { has_output } => {
                    if has_output {
                        let drop_output = self.task.header().vtable.drop_output;
                        // SAFETY: the task has ended, and the output belongs to this `Join`.
                        unsafe { drop_output(address) };
                    }
                    // SAFETY: this `Join` is being dropped, and the output has been dropped.
                    return unsafe { Self::release(address, has_output) };
                }
            }
        }
    }
}

/// Panic safety: the task catches panics of its future, so no reference sees a broken state.
impl<T, M: 'static> UnwindSafe for Join<T, M> {}
impl<T, M: 'static> RefUnwindSafe for Join<T, M> {}

impl<T, M: fmt::Debug + 'static> fmt::Debug for Join<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task.debug("Join", f)
    }
}
