//! The runtime, by Tourbillon.

use std::{
    io,
    marker::PhantomData,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

#[cfg(tokio_unstable)]
pub use real::runtime::{
    HistogramConfiguration, HistogramScale, InvalidHistogramConfiguration, LogHistogram,
    LogHistogramBuilder,
};
#[cfg(tokio_unstable)]
pub use tourbillon::facade::UnhandledPanic;
pub use tourbillon::runtime::{EnterGuard, Id, RuntimeFlavor, is_rt_shutdown_err, worker_index};
use tourbillon::{facade::spawn_local_on, task::JoinHandle};

#[cfg(tokio_unstable)]
pub use self::hooks::TaskMeta;
pub use self::{
    builder::Builder,
    handle::{Handle, TryCurrentError},
    metrics::RuntimeMetrics,
};
#[cfg(tokio_unstable)]
pub use crate::rng::RngSeed;

mod builder;
mod handle;
#[cfg(tokio_unstable)]
mod hooks;
mod metrics;

/// Tourbillon's runtime, whose polls have the budget of tokio's channels, too.
#[derive(Debug)]
pub struct Runtime {
    runtime: tourbillon::Runtime,
    handle: Handle,
}

impl Runtime {
    fn of(runtime: tourbillon::Runtime) -> Self {
        let handle = Handle::new(runtime.handle().clone());
        Self { runtime, handle }
    }

    /// Creates a runtime with a worker for each core.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses a thread or a descriptor.
    pub fn new() -> io::Result<Self> {
        Builder::new_multi_thread().enable_all().build()
    }

    /// Returns the runtime's handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts a task.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.runtime.spawn(future)
    }

    /// Runs a function on a thread that may block.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.runtime.spawn_blocking(f)
    }

    /// Runs a future to completion on the calling thread.
    ///
    /// # Panics
    ///
    /// Panics in a task, or if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        #[cfg(all(tokio_unstable, feature = "tracing"))]
        let future = tourbillon::facade::trace_block_on(future, std::panic::Location::caller());
        self.runtime.block_on(future)
    }

    /// Enters the runtime's context.
    pub fn enter(&self) -> EnterGuard<'_> {
        crate::context::note_thread();
        self.runtime.enter()
    }

    /// Returns the runtime's metrics.
    pub fn metrics(&self) -> RuntimeMetrics {
        self.handle.metrics()
    }

    /// Ends the runtime, and waits for at most `timeout`. Jobs of `spawn_blocking` that have not
    /// begun by then are dropped.
    pub fn shutdown_timeout(self, timeout: Duration) {
        self.runtime.shutdown_timeout(timeout);
    }

    /// Ends the runtime without waiting.
    pub fn shutdown_background(self) {
        self.runtime.shutdown_background();
    }
}

impl Deref for Runtime {
    type Target = tourbillon::Runtime;

    fn deref(&self) -> &tourbillon::Runtime {
        &self.runtime
    }
}

/// The options of a [`LocalRuntime`]. There are none.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LocalOptions {
    _here: PhantomData<*mut u8>,
}

/// A current-thread runtime whose tasks need not be `Send`, since it stays on the thread that has
/// built it.
#[derive(Debug)]
pub struct LocalRuntime {
    runtime: Runtime,
    _here: PhantomData<*mut u8>,
}

// Panic safety: the runtime catches the panics of tasks.
impl UnwindSafe for LocalRuntime {}
impl RefUnwindSafe for LocalRuntime {}

impl LocalRuntime {
    fn of(runtime: Runtime) -> Self {
        let _here = PhantomData;
        Self { runtime, _here }
    }

    /// Creates the runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses a descriptor.
    pub fn new() -> io::Result<Self> {
        Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
    }

    /// Returns the handle of the runtime.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Enters the runtime's context: `spawn_local` starts tasks here.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Starts a task on this thread. It runs during [`block_on`](LocalRuntime::block_on).
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: 'static> + 'static,
    {
        spawn_local_on(self.handle(), future)
    }

    /// Runs a function on a thread that may block.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.runtime.spawn_blocking(f)
    }

    /// Returns the runtime's metrics.
    pub fn metrics(&self) -> RuntimeMetrics {
        self.runtime.metrics()
    }

    /// Ends the runtime, and waits at most that long for its blocking jobs.
    pub fn shutdown_timeout(self, timeout: Duration) {
        self.runtime.shutdown_timeout(timeout);
    }

    /// Ends the runtime without waiting.
    pub fn shutdown_background(self) {
        self.runtime.shutdown_background();
    }

    /// Runs a future, and meanwhile the tasks of this thread.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}
