//! The options of a runtime.

use std::{env::VarError, io, time::Duration};

use tourbillon::facade::{Drivers, Options};

#[cfg(tokio_unstable)]
use super::{HistogramConfiguration, HistogramScale, RngSeed, UnhandledPanic};
use super::{LocalOptions, LocalRuntime, Runtime};
use crate::budget;

/// How late the work of a blocked worker may be. tokio has no bound. With Tourbillon's own default,
/// 1 ms, a worker that sleeps often sets a kernel timer twice for most sleeps. The README of this
/// package says what that costs a server.
const RESCUE_LATENCY: Duration = Duration::from_millis(10);

/// The options of a runtime, with the signatures of tokio's builder.
#[derive(Debug)]
pub struct Builder {
    builder: tourbillon::runtime::Builder,
    is_current_thread: bool,
    pub(super) options: Options,
    /// Whether the number of workers was set.
    has_workers: bool,
    /// Has the options of histograms, if there are any.
    #[cfg(tokio_unstable)]
    histograms: Option<real::runtime::Builder>,
}

impl Builder {
    fn new(builder: tourbillon::runtime::Builder, is_current_thread: bool) -> Self {
        let drivers = Drivers {
            io: false,
            time: false,
        };
        let options = Options {
            drivers,
            ..Options::DEFAULT
        };
        Self {
            builder,
            is_current_thread,
            options,
            // A current-thread runtime has one.
            has_workers: is_current_thread,
            #[cfg(tokio_unstable)]
            histograms: None,
        }
    }

    /// Creates a builder of a runtime with a worker for each core, or with as many workers as the
    /// variable `TOKIO_WORKER_THREADS` of the environment says. Workers are not
    /// [pinned](Builder::pin) to cores. What a blocked worker owes is at most 10 ms late
    /// ([`rescue_latency`](Builder::rescue_latency)).
    pub fn new_multi_thread() -> Self {
        let mut builder = tourbillon::runtime::Builder::new();
        // As in tokio. A program for tokio does not expect that the threads and processes that a
        // task starts have one core. And a pinned worker waits for its core while another process
        // runs there.
        builder.pin(false);
        builder.rescue_latency(RESCUE_LATENCY);
        Self::new(builder, false)
    }

    /// Creates a builder of a runtime that runs on the thread of `block_on`.
    pub fn new_current_thread() -> Self {
        let builder = tourbillon::runtime::Builder::new_current_thread();
        Self::new(builder, true)
    }

    /// Enables sockets and timers.
    pub fn enable_all(&mut self) -> &mut Self {
        self.enable_io().enable_time()
    }

    /// Enables sockets, pipes, signals and processes. Without this, creating one panics.
    pub fn enable_io(&mut self) -> &mut Self {
        self.options.drivers.io = true;
        self
    }

    /// Enables timers. Without this, creating a sleep, an interval or a timeout panics.
    pub fn enable_time(&mut self) -> &mut Self {
        self.options.drivers.time = true;
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// # Errors
    ///
    /// Returns an error if an option has an invalid value, or if the system refuses a thread.
    ///
    /// # Panics
    ///
    /// Panics if the number of workers was not set, and `TOKIO_WORKER_THREADS` is not a number or is
    /// zero.
    pub fn build(&mut self) -> io::Result<Runtime> {
        if !self.has_workers {
            if let Some(workers) = workers_of_environment() {
                self.builder.worker_threads(workers);
            }
        }
        // Before the workers start: each thread takes a budget at its start.
        budget::enable();
        #[cfg(tokio_unstable)]
        self.measure()?;
        self.options.clone().set(&mut self.builder);
        let runtime = self.builder.build().map_err(io::Error::other)?;
        Ok(Runtime::of(runtime))
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
        assert!(
            self.is_current_thread,
            "multi_thread is not supported for LocalRuntime"
        );
        self.options.is_local = true;
        let runtime = self.build();
        self.options.is_local = false;
        runtime.map(LocalRuntime::of)
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

/// What tokio has with `tokio_unstable`.
#[cfg(tokio_unstable)]
impl Builder {
    /// Sets what a panic of a task does.
    ///
    /// # Panics
    ///
    /// Panics if all tasks are to be cancelled, and this is not the builder of a current-thread
    /// runtime.
    #[track_caller]
    pub fn unhandled_panic(&mut self, behavior: UnhandledPanic) -> &mut Self {
        assert!(
            self.is_current_thread || matches!(behavior, UnhandledPanic::Ignore),
            "UnhandledPanic::ShutdownRuntime is only supported in current thread runtime"
        );
        self.options.unhandled_panic = behavior;
        self
    }

    /// Makes the order in which `select!` polls its branches the same in each run of the program,
    /// as far as the order in which threads enter the runtime is the same.
    pub fn rng_seed(&mut self, seed: RngSeed) -> &mut Self {
        self.options.around_polls = Some(crate::rng::seeded(&seed));
        self
    }

    /// Has woken tasks wait behind the others.
    pub fn disable_lifo_slot(&mut self) -> &mut Self {
        self.options.disables_next_slot = true;
        self
    }

    /// Enables timers, as [`enable_time`](Builder::enable_time) does: each worker has its own.
    pub fn enable_alt_timer(&mut self) -> &mut Self {
        self.enable_time()
    }

    /// Does nothing: each worker has its own epoll instance.
    pub fn enable_eager_driver_handoff(&mut self) -> &mut Self {
        self
    }

    /// Does nothing: blocking threads share one queue.
    pub fn enable_sharded_blocking_queue(&mut self) -> &mut Self {
        self
    }
}

/// Defines setters of histograms.
#[cfg(tokio_unstable)]
macro_rules! histogram_setters {
    ($($(#[$attribute:meta])* $name:ident($($value:ident: $Value:ty)?),)*) => {
        impl Builder {
            $(
                #[doc = "See tokio's method of this name."]
                $(#[$attribute])*
                pub fn $name(&mut self $(, $value: $Value)?) -> &mut Self {
                    self.histograms().$name($($value)?);
                    self
                }
            )*
        }
    };
}

#[cfg(tokio_unstable)]
histogram_setters! {
    enable_metrics_poll_time_histogram(),
    #[deprecated(note = "use `enable_metrics_poll_time_histogram`")]
    #[doc(hidden)]
    #[expect(deprecated, reason = "tokio has this name, too")]
    enable_metrics_poll_count_histogram(),
    metrics_poll_time_histogram_configuration(configuration: HistogramConfiguration),
    #[deprecated(note = "use `metrics_poll_time_histogram_configuration`")]
    #[expect(deprecated, reason = "tokio has this name, too")]
    metrics_poll_count_histogram_scale(scale: HistogramScale),
    #[deprecated(note = "use `metrics_poll_time_histogram_configuration`")]
    #[expect(deprecated, reason = "tokio has this name, too")]
    metrics_poll_count_histogram_resolution(resolution: Duration),
    #[deprecated(note = "use `metrics_poll_time_histogram_configuration`")]
    #[expect(deprecated, reason = "tokio has this name, too")]
    metrics_poll_count_histogram_buckets(buckets: usize),
    #[cfg(feature = "schedule-latency")]
    metrics_schedule_latency_histogram_configuration(configuration: HistogramConfiguration),
}

/// What tokio has with its feature `schedule-latency`.
#[cfg(all(tokio_unstable, feature = "schedule-latency"))]
impl Builder {
    /// Measures for how long each task is queued, for the hook before its poll.
    pub fn track_task_schedule_latency(&mut self) -> &mut Self {
        self.options.measures.tracks_latency = true;
        self
    }

    /// Counts for how long tasks are queued.
    pub fn enable_metrics_schedule_latency_histogram(&mut self) -> &mut Self {
        self.histograms()
            .enable_metrics_schedule_latency_histogram();
        self.track_task_schedule_latency()
    }
}

#[cfg(tokio_unstable)]
impl Builder {
    fn histograms(&mut self) -> &mut real::runtime::Builder {
        (self.histograms).get_or_insert_with(real::runtime::Builder::new_current_thread)
    }

    /// Takes the buckets of the histograms, if there are any, from a runtime of the real tokio that
    /// has the same options, and runs nothing.
    fn measure(&mut self) -> io::Result<()> {
        let Some(histograms) = &mut self.histograms else {
            return Ok(());
        };
        let runtime = histograms.build()?;
        let real = runtime.metrics();
        // Its destructor would panic in a task of the real tokio.
        runtime.shutdown_background();
        let starts = |buckets: usize, range: &dyn Fn(usize) -> std::ops::Range<Duration>| {
            let starts = (0..buckets).map(|bucket| range(bucket).start.as_nanos() as u64);
            Some(starts.collect())
        };
        if real.poll_time_histogram_enabled() {
            let range = |bucket| real.poll_time_histogram_bucket_range(bucket);
            self.options.measures.poll_times =
                starts(real.poll_time_histogram_num_buckets(), &range);
        }
        #[cfg(feature = "schedule-latency")]
        if real.schedule_latency_histogram_enabled() {
            let range = |bucket| real.schedule_latency_histogram_bucket_range(bucket);
            self.options.measures.latencies =
                starts(real.schedule_latency_histogram_num_buckets(), &range);
        }
        Ok(())
    }
}

/// Defines setters that pass their value on. Some panic with a text of tokio's if a condition does
/// not hold.
macro_rules! setters {
    ($($name:ident: $Value:ty $(, if $condition:expr; $text:literal)?;)*) => {
        impl Builder {
            $(
                #[doc = concat!(
                    "See [`", stringify!($name), "`](tourbillon::runtime::Builder::",
                    stringify!($name), ")."
                    $(, "\n\n# Panics\n\nPanics with *", $text, "*.")?
                )]
                #[track_caller]
                pub fn $name(&mut self, value: $Value) -> &mut Self {
                    $(
                        let is_valid: fn(&$Value) -> bool = $condition;
                        assert!(is_valid(&value), $text);
                    )?
                    self.builder.$name(value);
                    self
                }
            )*
        }
    };
}

setters! {
    event_interval: u32, if |jobs| *jobs > 0; "event_interval must be greater than 0";
    global_queue_interval: u32, if |jobs| *jobs > 0;
        "global_queue_interval must be greater than 0";
    max_blocking_threads: usize, if |threads| *threads > 0;
        "Max blocking threads cannot be set to 0";
    on_thread_park: impl Fn() + Send + Sync + 'static;
    on_thread_start: impl Fn() + Send + Sync + 'static;
    on_thread_stop: impl Fn() + Send + Sync + 'static;
    on_thread_unpark: impl Fn() + Send + Sync + 'static;
    pin: bool;
    rescue_latency: Duration;
    start_paused: bool;
    thread_keep_alive: Duration;
    thread_name: impl Into<String>;
    thread_stack_size: usize;
}

impl Builder {
    /// Sets the number of workers. `TOKIO_WORKER_THREADS` is not read then.
    ///
    /// # Panics
    ///
    /// Panics if it is zero, as in tokio.
    #[track_caller]
    pub fn worker_threads(&mut self, workers: usize) -> &mut Self {
        assert!(workers > 0, "Worker threads cannot be set to 0");
        self.has_workers = true;
        self.builder.worker_threads(workers);
        self
    }

    /// Names the runtime.
    ///
    /// # Panics
    ///
    /// Panics if the name is empty, as in tokio.
    #[track_caller]
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        let name = name.into();
        assert!(!name.trim().is_empty(), "runtime name shouldn't be empty");
        self.builder.name(name);
        self
    }
}

/// Returns the number of workers that the environment asks for. The texts of panics are tokio's.
fn workers_of_environment() -> Option<usize> {
    const NAME: &str = "TOKIO_WORKER_THREADS";
    let workers = match std::env::var(NAME) {
        Ok(text) => match text.parse() {
            Ok(workers) => workers,
            Err(error) => panic!("\"{NAME}\" must be usize, error: {error}, value: {text}"),
        },
        Err(VarError::NotPresent) => return None,
        Err(VarError::NotUnicode(text)) => {
            panic!("\"{NAME}\" must be valid unicode, error: {text:?}")
        }
    };
    assert!(workers > 0, "\"{NAME}\" cannot be set to 0");
    Some(workers)
}
