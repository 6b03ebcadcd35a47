//! Runs a future as a task of a system.

use std::{
    fmt,
    future::{Future, poll_fn},
    task::{Context, Poll},
};

use crate::{system::System, workload::refuse};

/// Number of operations after which a task yields.
const STEP: usize = 1_000;

/// Calls `op` `count` times in the current task, and yields after every thousand calls.
///
/// `op` gets the context of the task and the index of the call.
///
/// Some systems put off work until the task yields: tokio's alternative timers, for example,
/// enter a wheel only then. Without the yields, the measurement would not include this work.
pub async fn in_steps(count: usize, mut op: impl FnMut(&mut Context<'_>, usize)) {
    let mut done = 0;
    poll_fn(|cx| {
        let until = count.min(done + STEP);
        for index in done..until {
            op(cx, index);
        }
        done = until;
        if done == count {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns a new runtime.
///
/// # Panics
///
/// Panics on an error: without a runtime there is nothing to measure.
fn built<T>(runtime: Result<T, impl fmt::Display>) -> T {
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}"))
}

/// Returns the output of a task.
///
/// # Panics
///
/// Panics if the task has panicked.
fn joined<T>(task: Result<T, impl fmt::Display>) -> T {
    task.unwrap_or_else(|error| panic!("the measurement failed: {error}"))
}

/// Builds a Tourbillon runtime with `workers` workers and otherwise default settings.
pub fn tourbillon(workers: usize) -> tourbillon::Runtime {
    let mut builder = tourbillon::runtime::Builder::new();
    builder.worker_threads(workers);
    built(builder.build())
}

/// Builds a tokio runtime with `workers` workers and the kind of timers that `system` names.
pub fn tokio(system: System, workers: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_time();
    if system == System::TokioAlt {
        builder.enable_alt_timer();
    }
    built(builder.build())
}

/// A running system. Other threads can enter its context.
pub enum Runtime {
    Tourbillon(tourbillon::Runtime),
    Tokio(tokio::runtime::Runtime),
    /// smol's global executor.
    Smol,
}

impl Runtime {
    /// Starts `system` with `workers` workers.
    ///
    /// smol ignores `workers`: its global executor has one thread, and async-io has a second
    /// thread for timers.
    pub fn new(system: System, workers: usize) -> Self {
        match system {
            System::Tourbillon => Self::Tourbillon(tourbillon(workers)),
            System::Tokio | System::TokioAlt | System::DelayQueue => {
                Self::Tokio(tokio(system, workers))
            }
            System::Smol => Self::Smol,
            _ => refuse("not part of this workload"),
        }
    }

    /// Spawns a detached task from the calling thread. The task runs without tokio's budget.
    pub fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match self {
            Self::Tourbillon(runtime) => drop(runtime.spawn(future)),
            Self::Tokio(runtime) => drop(runtime.spawn(tokio::task::unconstrained(future))),
            Self::Smol => smol::spawn(future).detach(),
        }
    }

    /// Runs a future as a task on a worker, waits for it, and returns its output.
    ///
    /// The task runs without tokio's budget, which would be used up after 128 sleeps.
    ///
    /// # Panics
    ///
    /// Panics if the task panics.
    pub fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Tourbillon(runtime) => joined(runtime.block_on(runtime.spawn(future))),
            Self::Tokio(runtime) => {
                let task = runtime.spawn(tokio::task::unconstrained(future));
                joined(runtime.block_on(task))
            }
            Self::Smol => smol::block_on(smol::spawn(future)),
        }
    }

    /// Calls `f` on the calling thread, in the context of this runtime. Timers that `f` makes
    /// belong to this runtime.
    pub fn entered<R>(&self, f: impl FnOnce() -> R) -> R {
        match self {
            Self::Tourbillon(runtime) => {
                let _entered = runtime.enter();
                f()
            }
            Self::Tokio(runtime) => {
                let _entered = runtime.enter();
                f()
            }
            Self::Smol => f(),
        }
    }
}

/// Runs a future as a task of a new runtime with one worker, and returns its output.
pub fn on<F>(system: System, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Runtime::new(system, 1).run(future)
}
