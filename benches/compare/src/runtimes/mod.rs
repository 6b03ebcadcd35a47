//! The interface that workloads use for all runtimes. It has only what the workloads need.

mod smol;
mod tokio;
mod tourbillon;
#[cfg(feature = "uring")]
mod uring;

use std::{sync::mpsc, time::Instant};

use crate::system::System;
use crate::workload::refuse;

pub use self::{smol::Smol, tokio::Tokio, tourbillon::Tourbillon};

/// Number of workers of the multi-threaded runtimes. The other runtimes have one thread.
pub const WORKERS: usize = 2;

/// A runtime that tasks can be run on.
///
/// All futures are `Send`, because the multi-threaded runtimes need that. The single-threaded
/// runtimes wrap futures that are not `Send`. The wrapper checks the thread at each poll, which
/// costs one or two nanoseconds.
pub trait Runtime: Sized + 'static {
    /// Runs a task, on a worker if the runtime has workers, and returns its output.
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T;

    /// Spawns a detached task. The caller must be a task of this runtime.
    fn spawn(task: impl Future<Output = ()> + Send + 'static);

    /// Returns a future that completes at `deadline`.
    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static;

    /// Returns a future that yields to the scheduler once.
    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// A program that can run on each runtime.
pub trait Program {
    type Output;

    /// Runs the program on `runtime`.
    fn on<R: Runtime>(self, runtime: &R) -> Self::Output;
}

/// Runs a program on a new runtime of `system`.
///
/// Calls [`refuse`] if the system has no tasks or is not built in.
pub fn on<P: Program>(system: System, program: P) -> P::Output {
    match system {
        System::Tourbillon => program.on(&Tourbillon::new(|builder| builder)),
        System::Exact => program.on(&Tourbillon::new(|builder| builder.exact())),
        System::Tokio => program.on(&Tokio::new(|builder| builder)),
        System::TokioAlt => program.on(&Tokio::new(|builder| builder.enable_alt_timer())),
        System::Smol => program.on(&Smol::new()),
        System::DelayQueue => refuse("delay-queue has no tasks"),
        #[cfg(feature = "uring")]
        System::Compio => program.on(&uring::Compio::new()),
        #[cfg(feature = "uring")]
        System::Glommio => program.on(&uring::Glommio::new()),
        #[cfg(feature = "uring")]
        System::Monoio => program.on(&uring::Monoio::new()),
        #[cfg(not(feature = "uring"))]
        System::Compio | System::Glommio | System::Monoio => refuse("not built: feature uring"),
    }
}

/// Implements [`Runtime::run`]: spawns `task` with `start`, and waits for its output.
///
/// `start` spawns a detached task from a thread outside of the runtime.
///
/// # Panics
///
/// Panics if the task panics.
fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    task: F,
    start: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
) -> T {
    let (sender, receiver) = mpsc::channel();
    start(Box::pin(async move {
        let answer = task.await;
        sender.send(answer).expect("somebody waits");
    }));
    receiver.recv().expect("tasks do not panic")
}
