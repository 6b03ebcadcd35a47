//! Shared set-up of the tests of `spawn_blocking`.

use tourbillon::{JoinHandle, Runtime, runtime::Builder};

use super::Gate;

/// Builds a runtime of one worker and at most one blocking thread.
pub fn one_blocking_thread() -> Runtime {
    Builder::new()
        .worker_threads(1)
        .max_blocking_threads(1)
        .build()
        .unwrap()
}

/// Returns a job that blocks its thread until the second gate is opened and then returns `answer`.
/// The job opens the first gate when it runs.
pub fn blocking_job<R: Send + 'static>(
    answer: R,
) -> (Gate, Gate, impl FnOnce() -> R + Send + 'static) {
    let (begun, release) = (Gate::new(), Gate::new());
    let (begins, wait) = (begun.clone(), release.clone());
    let job = move || {
        begins.open();
        wait.wait();
        answer
    };
    (begun, release, job)
}

/// Blocks a thread of the runtime, and returns when the job runs. The job returns 1 when the gate
/// is opened.
#[track_caller]
pub fn block_a_thread(runtime: &Runtime) -> (JoinHandle<u8>, Gate) {
    let (begun, release, job) = blocking_job(1);
    let job = runtime.spawn_blocking(job);
    begun.wait();
    (job, release)
}
