//! Runtimes with a paused clock.

use tourbillon::{
    Runtime,
    runtime::{Builder, StoreKind},
};

/// Builds a runtime of `workers` workers on a paused clock.
pub fn paused(workers: usize) -> Runtime {
    with_store(workers, StoreKind::default())
}

/// Builds a runtime of `workers` workers on a paused clock, with timer stores of this kind.
pub fn with_store(workers: usize, store: StoreKind) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .timer_store(store)
        .start_paused(true)
        .build()
        .unwrap()
}
