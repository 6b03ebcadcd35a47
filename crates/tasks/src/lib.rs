//! Tasks for executors: a future in one allocation, with an atomic state word, counted references
//! of one pointer each, wakers, and a handle to the output.
//!
//! These are the tasks of the [Tourbillon](https://docs.rs/tourbillon) runtime, without its queues
//! and threads. An executor implements a [`Policy`], which queues a task that was woken, and then
//! calls [`Runnable::run`].
//!
//! ```
//! use std::{cell::RefCell, collections::VecDeque};
//! use tourbillon_tasks::{Policy, Runnable, Woken, spawn};
//!
//! thread_local! {
//!     static QUEUE: RefCell<VecDeque<Runnable<&'static str>>> = RefCell::default();
//! }
//!
//! /// All tasks run on one thread, in the order in which they were woken.
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
//! **Ownership.** A [`Runnable`] is the right to run the task; one exists each time the task is
//! scheduled. A [`Join`] is the right to the output. A [`TaskRef`] is a reference that can wake or
//! cancel the task and read its metadata; a [`Waker`](std::task::Waker) of the task is such a
//! reference, too. Each is one pointer. All of them dereference to [`Task`], which has their common
//! methods.
//!
//! **Waking.** A waiting task is scheduled once, no matter how often it is woken. A task that is
//! woken while it is polled is scheduled after the poll, as [`Woken::WhileRunning`].
//!
//! **Cancelling.** [`Task::cancel`] never drops the future on the cancelling thread. The future is
//! dropped where the task would run next. Dropping the [`Runnable`] drops the future at once. A
//! waiting task is cancelled if it has neither a waker nor a `Join` left, because nothing could
//! wake it.
//!
//! **Panics.** If the future panics, the panic is the output of the task, and the future is dropped
//! while the panic unwinds. If the destructor of the future panics, this panic is the output, too,
//! whether the task was cancelled or its future was ready; the result of a ready future is then
//! lost.
//!
//! Other panics are caught and reported to [`Policy::panicked`]: that of the destructor of a future
//! that has panicked already, and that of the destructor of an output that no `Join` takes.
//!
//! **Thread-local futures** need not be `Send`: see [`spawn_unchecked`].
//!
//! `PROTOCOLS.md` of this crate describes the states, what each thread may do in them, and why no
//! wake-up is lost. Loom and Miri check each protocol on this source.

mod cell;
mod header;
mod join;
mod policy;
mod reference;
mod runnable;
mod state;
mod waker;

use std::any::Any;

use self::cell::Cell;
pub use self::{
    header::Task,
    join::Join,
    policy::{Policy, WakerCall, Woken},
    reference::TaskRef,
    runnable::Runnable,
    state::Status,
};

/// The payload of a panic.
pub type Panic = Box<dyn Any + Send + 'static>;

/// A new task: the right to run it and the right to its output.
pub type Spawned<T, M> = (Runnable<M>, Join<T, M>);

/// Creates a task from a future. The caller must run the [`Runnable`], or
/// [schedule](Runnable::schedule) it.
///
/// The task is one allocation: 32 bytes, the metadata, and the larger of the future and its output.
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

/// Creates a task from a future that need not be `Send`. See [`spawn`].
///
/// # Safety
///
/// If the future or its output is not `Send`, then every [`Runnable`] of the task must be run or
/// dropped on one thread. This includes the returned one and those passed to [`Policy::schedule`],
/// and holds also for a `Runnable` that travels as a raw address.
///
/// This thread must be the calling thread. It may be another one if the future is `Send` until its
/// first poll, and its output is `Send`; the [`Join`] may then stay on the calling thread.
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
    // SAFETY: `allocate` returns the address of a new task, whose state counts one `Runnable` and
    // one `Join`.
    unsafe { (Runnable::of(address), Join::of(address)) }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
