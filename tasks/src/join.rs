//! Waiting for the output of a task.

use std::{
    fmt,
    marker::PhantomData,
    mem,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
    task::{Context, Poll, Waker},
};

use crate::{
    Panic, Task,
    header::Header,
    state::{Detached, Joined},
};

/// The right to the output of a task. There is one for each task.
///
/// Dropping it detaches the task, which goes on. The output is dropped by the thread that ends the
/// task then, or, if the task has ended, by the thread that drops this.
#[must_use = "dropping it detaches the task"]
pub struct Join<T, M: 'static> {
    task: Task<M>,
    /// The output may be dropped with this.
    _output: PhantomData<T>,
}

// SAFETY: who has it may take the output, or drop it, which is Send. Of the rest see `Task`.
unsafe impl<T: Send, M: Send + Sync + 'static> Send for Join<T, M> {}
// SAFETY: the output cannot be reached by a shared reference.
unsafe impl<T, M: Send + Sync + 'static> Sync for Join<T, M> {}

/// Nothing in it is pinned: the future is on the heap.
impl<T, M: 'static> Unpin for Join<T, M> {}

impl<T, M: 'static> Join<T, M> {
    /// # Safety
    ///
    /// It is the address of a task with outputs of this type, and there is no other `Join` of it.
    #[inline]
    pub(crate) unsafe fn of(header: NonNull<Header<M>>) -> Self {
        // SAFETY: the flag `HANDLE` keeps the task.
        let task = unsafe { Task::at(header) };
        let _output = PhantomData;
        Self { task, _output }
    }

    /// Is ready when the task has ended. Until then the waker of `cx` is the one to be woken, in
    /// place of the one of an earlier call.
    pub fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let header = self.task.header();
        let has_awaiter = match header.state.joined() {
            Joined::Ended { .. } => return Poll::Ready(()),
            Joined::Alive { has_awaiter } => has_awaiter,
        };
        if has_awaiter {
            // SAFETY: only this writes to the slot, and has written to it, as the flag says. The
            // thread that ends the task may take the waker out meanwhile, which leaves the bytes
            // that are compared as they are.
            let is_there = header
                .awaiter
                .with(|slot| unsafe { (*slot).assume_init_ref() }.will_wake(cx.waker()));
            if is_there {
                return Poll::Pending;
            }
        }
        // User code, which may panic: before anything is changed.
        let waker = cx.waker().clone();
        if has_awaiter && !header.state.take_awaiter() {
            return Poll::Ready(());
        }
        // SAFETY: the flag is not set, so the slot is this one's.
        let old = has_awaiter.then(|| unsafe { self.take() });
        header.awaiter.with_mut(|slot| {
            // SAFETY: see above.
            unsafe { (*slot).write(waker) };
        });
        if header.state.give_awaiter() {
            drop(old);
            return Poll::Pending;
        }
        // SAFETY: the flag was not set when the task ended, so the waker stays this one's.
        let waker = unsafe { self.take() };
        drop((old, waker));
        Poll::Ready(())
    }

    /// Takes the output of a task that has [ended](Task::has_ended), or what it panicked with.
    ///
    /// `None` if there is none, because the task was cancelled; and if it has not ended, in which
    /// case it is detached.
    #[inline]
    pub fn into_output(self) -> Option<Result<T, Panic>> {
        let Joined::Ended { has_output } = self.task.header().state.joined() else {
            return None;
        };
        let address = self.task.address();
        let output = has_output.then(|| {
            let output = self.task.header().vtable.output;
            // SAFETY: the task has ended, and the output is of this type. It is this one's, which
            // takes it once, since this is forgotten.
            unsafe { output(address).cast::<Result<T, Panic>>().read() }
        });
        mem::forget(self);
        // SAFETY: the task is there until this is given up.
        unsafe { Self::release(address, has_output) };
        output
    }

    /// Gives up the `Join` of a task that has ended.
    ///
    /// # Safety
    ///
    /// It is the address of the task of a `Join` which is not used, nor dropped, after this. If
    /// there was an output it was taken, or dropped.
    #[inline]
    unsafe fn release(address: NonNull<Header<M>>, had_output: bool) {
        // SAFETY: the flag `HANDLE` keeps the task.
        let released = unsafe { address.as_ref() }.state.release_join(had_output);
        // SAFETY: the state has just said so.
        unsafe { Task::released(address, released) };
    }

    /// The waker in the slot.
    ///
    /// # Safety
    ///
    /// There is one, and the slot is this one's. It is taken once.
    unsafe fn take(&self) -> Waker {
        let slot = &self.task.header().awaiter;
        // SAFETY: as the caller says.
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
                    // SAFETY: the state has just said so.
                    return unsafe { Task::released(address, released) };
                }
                Detached::TakeAwaiter => {
                    // SAFETY: the state has just said so, and that there was one.
                    let waker = unsafe { self.take() };
                    // User code. A panic of it goes no further.
                    crate::contain::contained(|| drop(waker));
                }
                Detached::Ended { has_output } => {
                    if has_output {
                        let drop_output = self.task.header().vtable.drop_output;
                        // SAFETY: the task has ended, and the output is this one's.
                        unsafe { drop_output(address) };
                    }
                    // SAFETY: this is being dropped.
                    return unsafe { Self::release(address, has_output) };
                }
            }
        }
    }
}

/// A panic of the future is caught where it is polled, and stays there.
impl<T, M: 'static> UnwindSafe for Join<T, M> {}
impl<T, M: 'static> RefUnwindSafe for Join<T, M> {}

impl<T, M: fmt::Debug + 'static> fmt::Debug for Join<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task.debug("Join", f)
    }
}
