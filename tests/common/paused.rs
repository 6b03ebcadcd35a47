//! Runtimes with a paused clock.

use tourbillon::{Runtime, runtime::Builder};

/// Builds a runtime of `workers` workers on a paused clock.
pub fn paused(workers: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .start_paused(true)
        .build()
        .unwrap()
}
