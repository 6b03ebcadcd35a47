//! smol: its executor and its timers, with two workers.
//!
//! `smol::spawn` has one worker, unless a variable of the environment says otherwise; so here is what it does,
//! with two: each is a thread that runs the executor in `smol::block_on`. They never end.

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

static EXECUTOR: Executor<'static> = Executor::new();
static WORK: Once = Once::new();

pub struct Smol(());

impl Smol {
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

/// A timer whose answer is not looked at.
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
