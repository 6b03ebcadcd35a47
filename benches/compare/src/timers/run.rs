//! Running a future on a system, as its task.

use std::{
    fmt,
    future::{Future, poll_fn},
    task::{Context, Poll},
};

use crate::{system::System, workload::refuse};

/// How many operations a task does before it gives way.
const STEP: usize = 1_000;

/// Does `op` so many times, and gives way after every thousand.
///
/// A task that never did would have a system count for nothing that puts its work off until then:
/// tokio's alternative timers, for example, are in no wheel before.
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

/// Returns the runtime. Without one there is nothing to measure.
fn built<T>(runtime: Result<T, impl fmt::Display>) -> T {
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}"))
}

/// Ours, with so many workers and nothing else set.
pub fn tourbillon(workers: usize) -> tourbillon::Runtime {
    let builder = tourbillon::runtime::Builder::new().worker_threads(workers);
    built(builder.build())
}

/// tokio's, with the timers that `system` stands for.
pub fn tokio(system: System, workers: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_time();
    if system == System::TokioAlt {
        builder.enable_alt_timer();
    }
    built(builder.build())
}

/// A running system, which lets other threads enter it.
pub enum Runtime {
    Tourbillon(tourbillon::Runtime),
    Tokio(tokio::runtime::Runtime),
    Smol,
}

impl Runtime {
    /// With so many workers. smol's own executor has one thread, and async-io a second for its timers.
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

    /// Spawns a detached task from this thread. tokio's tasks run without a budget.
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

    /// Runs a future as a task on a worker, and waits for it.
    ///
    /// tokio's is without a budget, which would end after 128 sleeps.
    pub fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Tourbillon(runtime) => built(runtime.block_on(runtime.spawn(future))),
            Self::Tokio(runtime) => {
                let task = runtime.spawn(tokio::task::unconstrained(future));
                built(runtime.block_on(task))
            }
            Self::Smol => smol::block_on(smol::spawn(future)),
        }
    }

    /// Runs `f` on this thread, so that timers made in it belong to this runtime.
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

/// Runs a future on a system with one worker.
pub fn on<F>(system: System, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Runtime::new(system, 1).run(future)
}
