//! The runtimes, seen alike: what a workload needs of them, and no more.

mod smol;
mod tokio;
mod tourbillon;
#[cfg(feature = "uring")]
mod uring;

use std::{sync::mpsc, time::Instant};

use crate::system::System;
use crate::workload::refuse;

pub use self::{smol::Smol, tokio::Tokio, tourbillon::Tourbillon};

/// How many workers those have that have any. The others are one thread.
pub const WORKERS: usize = 2;

/// The interface that workloads use. All futures are `Send`, since some systems have workers. The
/// others wrap values that are not `Send`. That costs them a check of the thread for each poll, of
/// a nanosecond or two.
pub trait Runtime: Sized + 'static {
    /// Runs a task, on a worker if there are any, and waits for what it answers.
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T;

    /// From a task.
    fn spawn(task: impl Future<Output = ()> + Send + 'static);

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static;

    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// A program that runs on any of them.
pub trait Program {
    type Output;

    fn on<R: Runtime>(self, runtime: &R) -> Self::Output;
}

/// Does it on a new runtime.
pub fn on<P: Program>(system: System, program: P) -> P::Output {
    match system {
        System::Tourbillon => program.on(&Tourbillon::new(|builder| builder)),
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

/// [`Runtime::run`] with what spawns a task from outside.
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
