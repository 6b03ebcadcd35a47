//! The task of an executor: a future in one allocation, with a state word, counted references of
//! one pointer each, wakers, and a handle to its output.
//!
//! These are the tasks of the [Tourbillon](https://docs.rs/tourbillon) runtime, without its queues
//! and threads. An executor says by a [`Policy`] where a task goes that was woken, and calls
//! [`Runnable::run`] on it there.
//!
//! ```
//! use std::{cell::RefCell, collections::VecDeque};
//! use tourbillon_tasks::{Policy, Runnable, Woken, spawn};
//!
//! thread_local! {
//!     static QUEUE: RefCell<VecDeque<Runnable<&'static str>>> = RefCell::default();
//! }
//!
//! /// All tasks run on one thread, first come first served.
//! struct Fifo;
//!
//! impl Policy for Fifo {
//!     type Metadata = &'static str;
//!
//!     fn schedule(task: Runnable<&'static str>, _: Woken) {
//!         QUEUE.with_borrow_mut(|queue| queue.push_back(task));
//!     }
//! }
//!
//! let (runnable, join) = spawn::<Fifo, _>(async { 6 * 7 }, "the answer");
//! assert_eq!(*join.metadata(), "the answer");
//! runnable.schedule();
//! while let Some(task) = QUEUE.with_borrow_mut(VecDeque::pop_front) {
//!     task.run();
//! }
//! assert!(join.has_ended());
//! assert_eq!(join.into_output().unwrap().unwrap(), 42);
//! ```
//!
//! # Guide
//!
//! **Who has what.** A [`Runnable`] is the right to run the task, and there is one for each time
//! that it is scheduled. A [`Join`] is the right to its output. A [`TaskRef`] is a reference that
//! wakes or cancels the task, and reads its metadata; a [`Waker`](std::task::Waker) of the task is
//! one, too. Each is one pointer. All of them lead to a [`Task`], which has what they can do in
//! common.
//!
//! **Waking.** A task that waits is scheduled once, however many wake it. One that is woken while
//! it is polled is scheduled after the poll, as [`Woken::WhileRunning`].
//!
//! **Cancelling.** [`Task::cancel`] has the future dropped where the task is run, never by the
//! thread that cancels. Dropping the [`Runnable`] drops the future there and then. A task that
//! waits, and of which neither a waker nor the `Join` is left, is cancelled: nobody could wake it.
//!
//! **Panics.** A panic of the future is the output of its task. The future is dropped while that
//! panic unwinds. A panic of the future's destructor is the output as well: of a task that was
//! cancelled, and of one that was ready, whose result is lost. A second panic, the destructor's of
//! a future that has panicked, goes no further, nor does a panic of a result that nobody takes: the
//! [policy](Policy::panicked) is told.
//!
//! **Futures that stay on a thread** need not be `Send`: see [`spawn_unchecked`].
//!
//! The states, with what each thread may do and why nothing is lost, are in `PROTOCOLS.md` of this
//! crate; each is checked by loom on this source, and by Miri.

mod cell;
mod contain;
mod header;
mod join;
mod policy;
mod reference;
mod runnable;
mod state;
mod sync;
mod waker;

use std::any::Any;

use self::cell::Cell;
pub use self::{
    header::Task,
    join::Join,
    policy::{Policy, Woken},
    reference::TaskRef,
    runnable::Runnable,
};

/// What a panic carries.
pub type Panic = Box<dyn Any + Send + 'static>;

/// A new task: the right to run it, and the right to its output.
pub type Spawned<T, M> = (Runnable<M>, Join<T, M>);

/// Makes a task of a future. It is not scheduled yet: the caller runs the [`Runnable`], or
/// [schedules](Runnable::schedule) it.
///
/// The task is one allocation, of 32 bytes, the metadata, and the larger one of the future and its
/// output.
#[inline]
pub fn spawn<P, F>(future: F, metadata: P::Metadata) -> Spawned<F::Output, P::Metadata>
where
    P: Policy,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: the future and its output are Send.
    unsafe { spawn_unchecked::<P, F>(future, metadata) }
}

/// Makes a task of a future that need not be `Send`: see [`spawn`].
///
/// # Safety
///
/// If the future or its output is not `Send`, each [`Runnable`] of the task, this one and those
/// that [`Policy::schedule`] is given, is run or dropped on one and the same thread. That is the
/// calling thread, or, if the future is `Send` until it is polled first and its output is `Send`, any
/// other: the [`Join`] stays with the caller. It is so as well for what a `Runnable` is sent to as an
/// address.
#[inline]
pub unsafe fn spawn_unchecked<P, F>(
    future: F,
    metadata: P::Metadata,
) -> Spawned<F::Output, P::Metadata>
where
    P: Policy,
    F: Future + 'static,
    F::Output: 'static,
{
    let address = Cell::<F, P>::allocate(future, metadata);
    // SAFETY: it has just been made, with one of each.
    unsafe { (Runnable::of(address), Join::of(address)) }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
