//! Tourbillon, with two workers.

use std::time::Instant;

use tourbillon::runtime::Builder;

use super::{Runtime, WORKERS, refuse};

/// A runtime of Tourbillon.
pub struct Tourbillon(tourbillon::Runtime);

impl Tourbillon {
    /// Builds a runtime, after `options` has changed its builder.
    ///
    /// Calls [`refuse`] if the runtime cannot be built.
    pub fn new(options: impl FnOnce(&mut Builder) -> &mut Builder) -> Self {
        let mut builder = Builder::new();
        builder.worker_threads(WORKERS);
        Self(
            options(&mut builder)
                .build()
                .unwrap_or_else(|error| refuse(error)),
        )
    }
}

impl Runtime for Tourbillon {
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        super::run(task, |task| drop(self.0.spawn(task)))
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        drop(tourbillon::spawn(task));
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        tourbillon::time::sleep_until(deadline.into())
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tourbillon::task::yield_now()
    }
}
