//! The runtime of this library: one thread, for all nodes and stores of the process.
//!
//! Leases, connections, the timers of jobs, ends and time limits run here. So a handler that blocks
//! its thread keeps none of them waiting: handlers run on the runtime of their node's user.

use std::{cell::Cell, process, sync::OnceLock};

use tourbillon::{Handle, Runtime, runtime::Builder};

use crate::store::StoreError;

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is one of the runtime's.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

/// The process that has made something. The child of a fork has copies of what its parent has made,
/// but not the threads that serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(process::id())
    }

    /// Fails in a child of this process.
    pub(crate) fn check(self) -> Result<(), StoreError> {
        match self == Self::this() {
            true => Ok(()),
            false => Err(StoreError::Forked),
        }
    }
}

/// The runtime of a process, and those of children that it forked.
struct Kept {
    process: Process,
    runtime: Runtime,
    /// That of the child, in the child.
    next: OnceLock<Box<Kept>>,
}

/// Returns the runtime, and starts its thread if this is the first call in this process.
///
/// # Panics
///
/// Panics if the system gives no thread.
pub(crate) fn handle() -> &'static Handle {
    // They are never dropped: stores may be dropped on their threads, and the child of a fork may
    // not drop what is its parent's.
    static FIRST: OnceLock<Kept> = OnceLock::new();
    let process = Process::this();
    let build = || {
        let mut builder = Builder::new();
        builder
            .name("durable")
            .thread_name("durable")
            .worker_threads(1)
            .on_thread_start(|| IS_HERE.set(true))
            // A busy core must not keep it waiting.
            .pin(false);
        match builder.build() {
            Ok(runtime) => Kept {
                process,
                runtime,
                next: OnceLock::new(),
            },
            Err(error) => panic!("the thread for leases and connections does not start: {error}"),
        }
    };
    let mut kept = FIRST.get_or_init(build);
    while kept.process != process {
        kept = kept.next.get_or_init(|| Box::new(build()));
    }
    kept.runtime.handle()
}

/// Returns the runtime of Tourbillon's that the calling thread is in, or else this library's.
pub(crate) fn here() -> Handle {
    Handle::try_current().unwrap_or_else(|_| handle().clone())
}
