//! Runtimes, and code on their workers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::mpsc,
    time::Duration,
};

use tourbillon::{Runtime, runtime::Builder};

use super::PATIENCE;

/// Builds a runtime of `workers` workers.
pub fn runtime(workers: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .build()
        .expect("the machine has threads and descriptors for a runtime")
}

/// Runs `f` in a callback on a worker of the runtime, and returns its result or resumes its panic.
#[track_caller]
pub fn on_worker<R: Send + 'static>(
    runtime: &Runtime,
    f: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (sender, receiver) = mpsc::channel();
    runtime.handle().after(Duration::ZERO, move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(f)));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => panic!("the callback did not run: {error}"),
    }
}
