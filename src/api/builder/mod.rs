//! The options of a runtime, and their defaults.
//!
//! The methods that set them are in one file for each subject.

mod recording;
mod stuck;
mod threads;
mod waiting;

use std::{fmt, sync::Arc, time::Duration};

use tourbillon_shards::{Tolerance, store::StoreKind};

use crate::{
    api::builder::waiting::DEFAULT_BUDGET,
    api::{build, runtime::Runtime},
    engine::{
        config::{Config, RuntimeFlavor},
        groups,
        recorder::{self, Recording},
        watchdog::rescue::DEFAULT_LATENCY,
    },
    error::BuildError,
    util::nanos::nanos,
};

/// Configures and builds a [`Runtime`].
///
/// Methods have tokio's names where tokio has the option. They return the builder that they set, so
/// calls can follow each other, or be statements of their own.
///
/// ```
/// # fn main() -> Result<(), tourbillon::BuildError> {
/// let runtime = tourbillon::runtime::Builder::new()
///     .worker_threads(2)
///     .thread_name("api")
///     .max_timers(1_000_000)
///     .build()?;
/// assert_eq!(runtime.handle().metrics().num_workers(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Builder {
    pub(crate) worker_threads: Option<usize>,
    pub(crate) cores: Option<Vec<usize>>,
    pub(crate) pin: bool,
    pub(crate) thread_name: Arc<dyn Fn(usize) -> String + Send + Sync>,
    pub(crate) start_paused: bool,
    pub(crate) config: Config,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Creates a builder with the defaults: one worker for each usable core, pinned to that core.
    pub fn new() -> Self {
        Self {
            worker_threads: None,
            cores: None,
            pin: true,
            thread_name: Arc::new(|index| format!("tourbillon-{index}")),
            start_paused: false,
            config: Config {
                flavor: RuntimeFlavor::MultiThread,
                name: None,
                event_interval: 61,
                global_queue_interval: 31,
                max_timers: None,
                timer_store: StoreKind::default(),
                rescue_latency: DEFAULT_LATENCY,
                timer_tolerance: Tolerance::EXACT,
                timer_budget: Some(DEFAULT_BUDGET),
                spin: true,
                spin_before: 0,
                timer_advance: 100_000,
                helpers: (0, 0),
                pins: None,
                cores: 1,
                shares_cores: false,
                follows_limits: false,
                default_group: groups::Options::named("default"),
                max_blocking_threads: 512,
                thread_keep_alive: Duration::from_secs(10),
                thread_stack_size: None,
                on_thread_start: None,
                on_thread_stop: None,
                #[cfg(feature = "facade")]
                facade: crate::engine::facade::Options::DEFAULT,
                on_thread_park: None,
                on_thread_unpark: None,
                stall_threshold: 100_000_000,
                on_stall: None,
                recording: Recording::Light,
                recorded_events: recorder::DEFAULT_EVENTS,
                late_threshold: nanos(recorder::DEFAULT_LATE),
            },
        }
    }

    /// Creates a builder, as [`new`](Builder::new) does. It is there so that code written for tokio
    /// compiles.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = tourbillon::runtime::Builder::new_multi_thread()
    ///     .enable_all()
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new_multi_thread() -> Self {
        Self::new()
    }

    /// Creates a builder for a runtime without threads of its own, for tests and small tools.
    ///
    /// Tasks, timers and sockets run on the thread that is in
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on), in turn with the future of that
    /// call. Between two calls nothing runs: tasks stay queued, and timers that come due fire in
    /// the next call. If several threads are in `block_on`, one of them runs everything.
    /// [`Handle::block_on`](crate::Handle::block_on) runs its own future only, so it may wait for a
    /// task that nothing runs.
    ///
    /// There is one worker, without watchdog or helpers: a callback or a task that blocks keeps all
    /// others waiting. The options of workers have no effect:
    /// [`worker_threads`](Builder::worker_threads), [`cores`](Builder::cores),
    /// [`pin`](Builder::pin), [`helpers`](Builder::helpers),
    /// [`thread_name`](Builder::thread_name), and, but for blocking threads,
    /// [`on_thread_start`](Builder::on_thread_start) and
    /// [`on_thread_stop`](Builder::on_thread_stop). A task of `spawn_pinned` is cancelled at once,
    /// since the thread may change from call to call: use a [`LocalSet`](crate::task::LocalSet).
    /// [`spawn_blocking`](crate::task::spawn_blocking) has threads of its own, as always.
    ///
    /// Such a runtime is cheap to make and to drop. It takes a descriptor when it needs one: to
    /// wait for a socket, or to sleep. While tasks are ready, and on a paused clock that goes on by
    /// itself, it has none.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::{thread, time::Duration};
    /// use tourbillon::{runtime::Builder, time::sleep};
    ///
    /// let runtime = Builder::new_current_thread().enable_all().build()?;
    /// let task = runtime.spawn(async {
    ///     sleep(Duration::from_millis(1)).await;
    ///     thread::current().id()
    /// });
    /// assert_eq!(runtime.block_on(task).unwrap(), thread::current().id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new_current_thread() -> Self {
        let mut builder = Self::new();
        builder.config.flavor = RuntimeFlavor::CurrentThread;
        builder
    }

    /// Does nothing: sockets and timers are always enabled. It is there so that code written for
    /// tokio compiles.
    pub fn enable_all(&mut self) -> &mut Self {
        self
    }

    /// Does nothing: sockets are always enabled. See [`enable_all`](Builder::enable_all).
    pub fn enable_io(&mut self) -> &mut Self {
        self
    }

    /// Does nothing: timers are always enabled. See [`enable_all`](Builder::enable_all).
    pub fn enable_time(&mut self) -> &mut Self {
        self
    }

    /// Sets the name of the runtime, which [`Handle::name`](crate::Handle::name) returns. The
    /// default is none.
    ///
    /// It does not name the threads: see [`thread_name`](Builder::thread_name).
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = tourbillon::runtime::Builder::new().name("api").build()?;
    /// assert_eq!(runtime.handle().name(), Some("api"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a name that is empty or has only spaces, with
    /// [`BuildError::EmptyName`](crate::BuildError::EmptyName).
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.config.name = Some(name.into());
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// The builder keeps its options: another call builds another runtime like it. Both call the
    /// same functions, those of [`on_stall`](Builder::on_stall) and of
    /// [`on_thread_start`](Builder::on_thread_start), for example.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let mut builder = tourbillon::runtime::Builder::new();
    /// builder.worker_threads(1);
    /// let inner = builder.name("inner").build()?;
    /// let outer = builder.name("outer").build()?;
    /// assert_eq!(inner.handle().name(), Some("inner"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if an option has an invalid value, or if the system refuses a thread or a
    /// descriptor. Each worker needs four descriptors, a helper three, and the runtime two. A
    /// [current-thread](Builder::new_current_thread) runtime takes its descriptors when it needs
    /// them, so `build` asks for none.
    ///
    /// # Panics
    ///
    /// Panics if the function given to [`thread_name_fn`](Builder::thread_name_fn) panics.
    pub fn build(&mut self) -> Result<Runtime, BuildError> {
        build::build(self)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.config.name)
            .field("worker_threads", &self.worker_threads)
            .field("cores", &self.cores)
            .field("pin", &self.pin)
            .field("follow_limits", &self.config.follows_limits)
            .field("thread_stack_size", &self.config.thread_stack_size)
            .field("event_interval", &self.config.event_interval)
            .field("global_queue_interval", &self.config.global_queue_interval)
            .field("max_timers", &self.config.max_timers)
            .field("timer_store", &self.config.timer_store)
            .field("rescue_latency", &self.config.rescue_latency)
            .field(
                "timer_tolerance",
                &Duration::from_nanos(self.config.timer_tolerance.ns()),
            )
            .field("spin", &self.config.spin)
            .field(
                "spin_before",
                &Duration::from_nanos(self.config.spin_before),
            )
            .field(
                "timer_advance",
                &Duration::from_nanos(self.config.timer_advance),
            )
            .field("helpers", &(self.config.helpers.0..=self.config.helpers.1))
            .field("default_group", &self.config.default_group)
            .field("max_blocking_threads", &self.config.max_blocking_threads)
            .field("thread_keep_alive", &self.config.thread_keep_alive)
            .field(
                "stall_threshold",
                &Duration::from_nanos(self.config.stall_threshold),
            )
            .field("flight_recorder", &self.config.recording)
            .field(
                "late_threshold",
                &Duration::from_nanos(self.config.late_threshold),
            )
            .field("start_paused", &self.start_paused)
            .finish_non_exhaustive()
    }
}
