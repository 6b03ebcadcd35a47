//! tokio: the multi-threaded runtime with all drivers, like `#[tokio::main]`, and two workers.

use std::time::Instant;

use tokio::runtime::Builder;

use super::{Runtime, WORKERS, refuse};

/// A runtime of tokio.
pub struct Tokio(tokio::runtime::Runtime);

impl Tokio {
    /// Builds a runtime, after `options` has changed its builder.
    ///
    /// Calls [`refuse`] if the runtime cannot be built.
    pub fn new(options: fn(&mut Builder) -> &mut Builder) -> Self {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).enable_all();
        let built = options(&mut builder).build();
        Self(built.unwrap_or_else(|error| refuse(error)))
    }
}

impl Runtime for Tokio {
    fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        super::run(task, |task| drop(self.0.spawn(task)))
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep_until(deadline.into())
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}
