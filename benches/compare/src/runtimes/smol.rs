//! smol: its executor and its timers, with two workers.
//!
//! `smol::spawn` uses one worker, unless the environment variable `SMOL_THREADS` says otherwise.
//! This module does the same as `smol::spawn`, with two workers. Each worker is a thread that
//! runs the executor in `smol::block_on`. The workers never end.

use std::{
    future,
    pin::Pin,
    sync::Once,
    task::{Context, Poll},
    thread,
    time::Instant,
};

use smol::{Executor, Timer};

use super::{Runtime, WORKERS, refuse};

/// The executor, which all values of [`Smol`] share.
static EXECUTOR: Executor<'static> = Executor::new();
/// Starts the workers once per process.
static WORK: Once = Once::new();

/// The running workers. [`Smol::new`] is the only constructor, so the workers run if a value
/// exists.
pub struct Smol(());

impl Smol {
    /// Starts the workers, unless they run already.
    ///
    /// Calls [`refuse`] if a thread cannot be started.
    pub fn new() -> Self {
        WORK.call_once(|| {
            for index in 0..WORKERS {
                thread::Builder::new()
                    .name(format!("smol-{index}"))
                    .spawn(|| smol::block_on(EXECUTOR.run(future::pending::<()>())))
                    .unwrap_or_else(|error| refuse(error));
            }
        });
        Self(())
    }
}

/// A timer without its output, which is an instant.
struct Sleep(Timer);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

impl Runtime for Smol {
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        super::run(task, |task| EXECUTOR.spawn(task).detach())
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        EXECUTOR.spawn(task).detach();
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        Sleep(Timer::at(deadline))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        smol::future::yield_now()
    }
}
