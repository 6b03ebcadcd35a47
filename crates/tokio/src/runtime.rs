//! The runtime, by Tourbillon.

use std::{
    io,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

pub use tourbillon::runtime::{EnterGuard, Id, RuntimeFlavor, is_rt_shutdown_err, worker_index};
use tourbillon::{
    facade::{Drivers, TaskHooks},
    task::{JoinHandle, LocalEnterGuard, LocalSet},
};

#[cfg(tokio_unstable)]
pub use self::hooks::TaskMeta;
pub use self::{
    handle::{Handle, TryCurrentError},
    metrics::RuntimeMetrics,
};
use crate::budget;

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

/// The options of a runtime, with the signatures of tokio's builder.
#[derive(Debug)]
pub struct Builder {
    builder: tourbillon::runtime::Builder,
    drivers: Drivers,
    hooks: TaskHooks,
}

impl Builder {
    fn new(builder: tourbillon::runtime::Builder) -> Self {
        let drivers = Drivers {
            io: false,
            time: false,
        };
        Self {
            builder,
            drivers,
            hooks: TaskHooks::default(),
        }
    }

    /// Creates a builder of a runtime with a worker for each core.
    pub fn new_multi_thread() -> Self {
        Self::new(tourbillon::runtime::Builder::new())
    }

    /// Creates a builder of a runtime that runs on the thread of `block_on`.
    pub fn new_current_thread() -> Self {
        Self::new(tourbillon::runtime::Builder::new_current_thread())
    }

    /// Enables sockets and timers.
    pub fn enable_all(&mut self) -> &mut Self {
        self.enable_io().enable_time()
    }

    /// Enables sockets, pipes, signals and processes. Without this, creating one panics.
    pub fn enable_io(&mut self) -> &mut Self {
        self.drivers.io = true;
        self
    }

    /// Enables timers. Without this, creating a sleep, an interval or a timeout panics.
    pub fn enable_time(&mut self) -> &mut Self {
        self.drivers.time = true;
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// # Errors
    ///
    /// Returns an error if an option has an invalid value, or if the system refuses a thread.
    pub fn build(&mut self) -> io::Result<Runtime> {
        // Before the workers start: each thread takes a budget at its start.
        budget::enable();
        self.drivers.set(&mut self.builder);
        self.hooks.clone().set(&mut self.builder);
        let runtime = self.builder.build().map_err(io::Error::other)?;
        let handle = Handle::new(runtime.handle().clone());
        Ok(Runtime { runtime, handle })
    }

    /// Builds a runtime whose tasks need not be `Send`.
    ///
    /// # Errors
    ///
    /// See [`build`](Builder::build).
    ///
    /// # Panics
    ///
    /// Panics if this is not the builder of a current-thread runtime.
    #[track_caller]
    pub fn build_local(&mut self, _: LocalOptions) -> io::Result<LocalRuntime> {
        let runtime = self.build()?;
        assert!(
            runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread,
            "a local runtime must be built by `new_current_thread`"
        );
        let tasks = Tasks {
            set: Some(LocalSet::new()),
            handle: runtime.handle().clone(),
        };
        Ok(LocalRuntime { tasks, runtime })
    }

    /// Does nothing: a worker takes as many events of sockets at once as it finds.
    ///
    /// # Panics
    ///
    /// Panics if `most` is zero, as in tokio.
    #[track_caller]
    pub fn max_io_events_per_tick(&mut self, most: usize) -> &mut Self {
        assert!(most > 0, "max_io_events_per_tick must be non-zero");
        self
    }

    /// Does nothing: a worker takes as many events of sockets at once as it finds.
    ///
    /// # Panics
    ///
    /// Panics if `most` is zero, as in tokio.
    #[track_caller]
    pub fn max_io_events_per_busy_tick(&mut self, most: usize) -> &mut Self {
        assert!(most > 0, "max_io_events_per_busy_tick must be non-zero");
        self
    }

    /// Names each thread by a function.
    pub fn thread_name_fn(
        &mut self,
        name: impl Fn() -> String + Send + Sync + 'static,
    ) -> &mut Self {
        self.builder.thread_name_fn(move |_| name());
        self
    }
}

/// Defines setters that pass their value on.
macro_rules! setters {
    ($($name:ident: $Value:ty,)*) => {
        impl Builder {
            $(
                #[doc = concat!(
                    "See [`", stringify!($name), "`](tourbillon::runtime::Builder::",
                    stringify!($name), ")."
                )]
                pub fn $name(&mut self, value: $Value) -> &mut Self {
                    self.builder.$name(value);
                    self
                }
            )*
        }
    };
}

setters! {
    event_interval: u32,
    global_queue_interval: u32,
    max_blocking_threads: usize,
    name: impl Into<String>,
    on_thread_park: impl Fn() + Send + Sync + 'static,
    on_thread_start: impl Fn() + Send + Sync + 'static,
    on_thread_stop: impl Fn() + Send + Sync + 'static,
    on_thread_unpark: impl Fn() + Send + Sync + 'static,
    start_paused: bool,
    thread_keep_alive: Duration,
    thread_name: impl Into<String>,
    thread_stack_size: usize,
    worker_threads: usize,
}

/// The options of a [`LocalRuntime`]. There are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalOptions {
    _private: (),
}

/// Keeps a [`LocalRuntime`] entered until it is dropped.
#[derive(Debug)]
pub struct LocalGuard<'a> {
    // Dropped in the reverse order of the entries.
    _tasks: LocalEnterGuard,
    _runtime: EnterGuard<'a>,
}

/// A runtime whose tasks need not be `Send`: a [`LocalSet`] of the calling thread, and a
/// current-thread runtime for its timers and sockets.
#[derive(Debug)]
pub struct LocalRuntime {
    // Dropped first, since its tasks may use the runtime.
    tasks: Tasks,
    runtime: Runtime,
}

// Panic safety: the runtime catches the panics of tasks, and the state of the set changes under no
// user code.
impl UnwindSafe for LocalRuntime {}
impl RefUnwindSafe for LocalRuntime {}

/// The tasks of a [`LocalRuntime`]. They are dropped in the context of the runtime, as all tasks.
#[derive(Debug)]
struct Tasks {
    /// `None` only after the drop.
    set: Option<LocalSet>,
    handle: Handle,
}

impl Tasks {
    fn set(&self) -> &LocalSet {
        self.set.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let _entered = self.handle.enter();
        drop(self.set.take());
    }
}

impl LocalRuntime {
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

    /// Enters the runtime's context, and that of its tasks: `spawn_local` starts tasks here.
    pub fn enter(&self) -> LocalGuard<'_> {
        let runtime = self.runtime.enter();
        LocalGuard {
            _tasks: self.tasks.set().enter(),
            _runtime: runtime,
        }
    }

    /// Starts a task on this thread. It runs during [`block_on`](LocalRuntime::block_on).
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: 'static> + 'static,
    {
        self.tasks.set().spawn_local(future)
    }

    /// Runs a function on a thread that may block.
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
        drop(self.tasks);
        self.runtime.shutdown_timeout(timeout);
    }

    /// Ends the runtime without waiting.
    pub fn shutdown_background(self) {
        drop(self.tasks);
        self.runtime.shutdown_background();
    }

    /// Runs a future, and meanwhile the tasks of this thread.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.tasks.set().block_on(&self.runtime, future)
    }
}
