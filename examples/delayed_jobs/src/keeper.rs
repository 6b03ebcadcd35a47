//! The runtime of this library: one thread, for all nodes and stores of the process.
//!
//! Leases, connections, the timers of jobs, ends and time limits run here. So a handler that blocks
//! its thread keeps none of them waiting: handlers run on the runtime of their node's user.

use std::{cell::Cell, sync::OnceLock};

use tourbillon::{Handle, Runtime};

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is one of the runtime's.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

/// Returns the runtime, and starts its thread if this is the first call.
///
/// # Panics
///
/// Panics if the system gives no thread.
pub(crate) fn handle() -> &'static Handle {
    // It is never dropped: stores may be dropped on its thread.
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let build = || {
        let builder = Runtime::builder()
            .name("durable")
            .thread_name("durable")
            .worker_threads(1)
            .on_thread_start(|| IS_HERE.set(true))
            // A busy core must not keep it waiting.
            .pin(false);
        match builder.build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("the thread for leases and connections does not start: {error}"),
        }
    };
    RUNTIME.get_or_init(build).handle()
}
