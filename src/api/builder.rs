//! The options of a runtime, and their defaults.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use tourbillon_shards::store::StoreKind;

use crate::{
    api::{build, runtime::Runtime},
    engine::{config::Config, watchdog::stall::Stall},
    error::BuildError,
};

/// The system call by which workers wait for the next deadline: see [`Builder::precise_wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreciseWait {
    /// `epoll_pwait2` for waits of up to 10 ms, where the kernel has it (Linux 5.11); otherwise a
    /// timerfd. (The kernel may end an `epoll_pwait2` late by a thousandth of the wait.)
    #[default]
    Auto,
    /// Always a timerfd.
    Timerfd,
}

/// Configures and builds a [`Runtime`].
///
/// Methods have tokio's names where tokio has the option.
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
    pub(crate) precise_wait: PreciseWait,
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
            precise_wait: PreciseWait::Auto,
            start_paused: false,
            config: Config {
                event_interval: 61,
                global_queue_interval: 31,
                max_timers: None,
                timer_store: StoreKind::default(),
                rescue_grace: Duration::from_micros(50),
                spin_before: 0,
                timer_advance: 100_000,
                helpers: (0, 0),
                pwait2: false,
                pins: None,
                cores: 1,
                max_blocking_threads: 512,
                thread_keep_alive: Duration::from_secs(10),
                thread_stack_size: None,
                on_thread_start: None,
                on_thread_stop: None,
                stall_threshold: 100_000_000,
                on_stall: None,
            },
        }
    }

    /// Sets the number of workers. The default is one for each core that the affinity mask and the
    /// CPU quota allow.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero with [`BuildError::ZeroWorkers`], and more than 4096
    /// with [`BuildError::TooManyWorkers`].
    pub fn worker_threads(mut self, workers: usize) -> Self {
        self.worker_threads = Some(workers);
        self
    }

    /// Sets whether workers are pinned to cores. The default is `true`.
    ///
    /// Even then, workers are not pinned if there are more workers than cores, or if a CPU quota
    /// limits their number more than the affinity mask does: the kernel chooses cores better then.
    /// [`cores`](Builder::cores) pins them in these cases, too. A thread that a worker starts
    /// inherits the worker's core until it sets its own affinity.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Sets the cores that workers are pinned to: the first worker to the first core, and so on.
    ///
    /// There is one worker for each core, unless [`worker_threads`](Builder::worker_threads) sets
    /// another number. If there are more workers than cores, the cores are used in turn. A core may
    /// appear more than once.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a core that the affinity mask of the process excludes,
    /// with [`BuildError::CoreNotAllowed`]. It refuses an empty list with
    /// [`BuildError::ZeroWorkers`], unless `worker_threads` sets the number.
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// Sets one name for all worker threads. The default is `tourbillon-0`, `tourbillon-1` and so
    /// on.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a name with a NUL byte, with [`BuildError::ThreadName`].
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.thread_name = Arc::new(move |_| name.clone());
        self
    }

    /// Sets a function that returns the name of each worker thread from the worker's number.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a name with a NUL byte, with [`BuildError::ThreadName`].
    pub fn thread_name_fn<F>(mut self, name: F) -> Self
    where
        F: Fn(usize) -> String + Send + Sync + 'static,
    {
        self.thread_name = Arc::new(name);
        self
    }

    /// Sets the stack size of the threads of the runtime, in bytes: the workers, and the threads of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking). The default is the standard
    /// library's.
    ///
    /// Callbacks and tasks run on this stack. A stack that overflows ends the process. Below 64 KiB
    /// the stack may be too small for the worker itself.
    pub fn thread_stack_size(mut self, bytes: usize) -> Self {
        self.config.thread_stack_size = Some(bytes);
        self
    }

    /// Sets after how many jobs a busy worker checks its timers and sockets. The default is 61.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with [`BuildError::ZeroInterval`].
    pub fn event_interval(mut self, jobs: u32) -> Self {
        self.config.event_interval = jobs;
        self
    }

    /// Sets after how many jobs a busy worker checks the global queue, which holds jobs from other
    /// threads. The default is 31.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with [`BuildError::ZeroInterval`].
    pub fn global_queue_interval(mut self, jobs: u32) -> Self {
        self.config.global_queue_interval = jobs;
        self
    }

    /// Sets how late a timer may be before a peer takes it over, if the timer's own worker is
    /// blocked in a callback or in the poll of a task. The default is 50 µs.
    ///
    /// The peer wakes early by its learned wake-up latency (see
    /// [`timer_advance`](Builder::timer_advance)) and by a part of the grace. So it takes the timer
    /// over between the deadline and the end of the grace, or a little later.
    ///
    /// Peers begin to watch a worker that has not returned to its loop for 4 ms. After that they
    /// check it each 1 ms, and each 4 ms if they find nothing for some time; and when a timer is
    /// late by the grace. So a timer that comes due in the first 4 ms, and a socket, may wait for
    /// up to 4 ms more. With `Duration::MAX` no peer takes anything over: timers and sockets wait
    /// for their own worker, unless that worker is in
    /// [`block_in_place`](crate::task::blocking::block_in_place).
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .worker_threads(2)
    ///     .rescue_grace(Duration::from_millis(1))
    ///     .build()?;
    /// let (sender, receiver) = mpsc::channel();
    /// runtime.spawn(async move {
    ///     let timer = tourbillon::Timer::after(Duration::from_millis(2));
    ///     timer.start(move || sender.send("in time").unwrap());
    ///     // Blocks the worker. A peer runs the timer meanwhile.
    ///     thread::sleep(Duration::from_secs(1));
    /// });
    /// assert_eq!(receiver.recv(), Ok("in time"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn rescue_grace(mut self, grace: Duration) -> Self {
        self.config.rescue_grace = grace;
        self
    }

    /// Sets for how long before its next deadline an idle worker spins instead of sleeping. The
    /// default is zero: the worker sleeps, unless the deadline is nearer than a sleep takes.
    ///
    /// A worker that spins checks the clock, its sockets and the queues without a pause. A timer is
    /// then late by one such check, which takes a few µs, and not by the kernel's wake-up, which
    /// takes tens of µs. Each wake-up by a deadline costs up to `before` of processor time. If
    /// deadlines are nearer to each other than `before`, the core is never idle. So use this for
    /// few workers, on cores that nothing else needs. Values of 100 to 200 µs cover the wake-up
    /// latency of most machines. A runtime with a paused clock never spins.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::{sync::mpsc, time::{Duration, Instant}};
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .worker_threads(1)
    ///     .spin_before(Duration::from_micros(100))
    ///     .build()?;
    /// let (sender, receiver) = mpsc::channel();
    /// let due = Instant::now() + Duration::from_millis(5);
    /// runtime.at(due, move || sender.send(Instant::now()).unwrap());
    /// let late = receiver.recv().unwrap().duration_since(due);
    /// println!("late by {late:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn spin_before(mut self, before: Duration) -> Self {
        self.config.spin_before = before.as_nanos().try_into().unwrap_or(u64::MAX);
        self
    }

    /// Sets the largest wake-up latency that a worker compensates. The default is 100 µs.
    ///
    /// The kernel ends a sleep late: by 5 µs on some machines, by 30 to 100 µs on others, and by
    /// about the same amount each time. A worker learns this latency from its own sleeps, and
    /// sleeps that much less. If the kernel is quicker once, the worker spins until the deadline,
    /// as with [`spin_before`](Builder::spin_before), and learns a smaller value. So on an idle
    /// runtime timers are late by a few µs, for some 2 µs of processor time each, and no timer is
    /// ever early. A peer that takes over the timers of a blocked worker compensates its latency
    /// likewise.
    ///
    /// With `Duration::ZERO` a worker sleeps until the deadline itself. Workers compensate nothing
    /// on a clock that is or was [paused](crate::time::paused::pause), nor before a timer that has
    /// a [tolerance](crate::timer::builder::TimerBuilder::tolerance).
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    ///
    /// // On a machine whose cores take long to leave their deepest idle state.
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .timer_advance(Duration::from_micros(300))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timer_advance(mut self, most: Duration) -> Self {
        self.config.timer_advance = most.as_nanos().try_into().unwrap_or(u64::MAX);
        self
    }

    /// Sets the least and the greatest number of helpers. The default is `0..=0`: no helper.
    ///
    /// A helper is a thread that does the workers' jobs while all workers are blocked, in callbacks
    /// that block or compute for long. Without helpers nothing makes progress in that case. With
    /// `n` helpers up to `n` of them may block in turn.
    ///
    /// With `0..=n` the runtime starts a helper the first time that all workers are awake at once,
    /// and the helper waits. A helper that nothing has called for the
    /// [keep-alive](Builder::thread_keep_alive) ends, unless it is the last thread that can be
    /// called. The lower bound is the number of helpers that are there from the start.
    ///
    /// Helpers are not pinned. They have no timers and no sockets of their own, and run jobs until
    /// they find none. Workers that are busy but not blocked do not call them.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(1).helpers(0..=2).build()?;
    /// let (sender, receiver) = mpsc::channel();
    /// runtime.spawn(async move {
    ///     let timer = tourbillon::Timer::after(Duration::from_millis(2));
    ///     timer.start(move || sender.send("in time").unwrap());
    ///     // Blocks the only worker: no thread but a helper can run the timer.
    ///     thread::sleep(Duration::from_secs(1));
    /// });
    /// assert_eq!(receiver.recv(), Ok("in time"));
    /// assert!(runtime.metrics().num_helpers() >= 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses an empty range, and more than 4096 helpers, with
    /// [`BuildError::Helpers`].
    pub fn helpers(mut self, helpers: RangeInclusive<usize>) -> Self {
        self.config.helpers = (*helpers.start(), *helpers.end());
        self
    }

    /// Sets how many callback timers may be pending at once. By default there is no bound.
    ///
    /// Beyond the bound, [`try_after`](crate::runtime::Handle::try_after) and the other `try_`
    /// methods return an error. A timer counts until it ends: until it is cancelled, or until its
    /// callback returns. Sleeps do not count. `after`, `at` and `every` cannot return an error:
    /// their timers count, and may exceed the bound.
    pub fn max_timers(mut self, timers: usize) -> Self {
        self.config.max_timers = Some(timers);
        self
    }

    /// Sets the data structure in which each worker keeps its timers, and in which the runtime
    /// keeps timers of the wall clock and of the boot-time clock. The default is
    /// [`StoreKind::Wheel`].
    ///
    /// Choose the other store only if a measurement shows that it is better for your timers. Both
    /// have nanosecond resolution and take any deadline.
    ///
    /// - [`StoreKind::Wheel`]: a lazy hierarchical wheel. The average cost of an operation hardly
    ///   depends on the number of timers. Now and then one operation also sorts the timers that
    ///   come due at about the same time; this takes some tens of µs.
    /// - [`StoreKind::Heap`]: a 4-ary heap. No single operation takes much longer than another, and
    ///   a timer that was cancelled or reset leaves nothing behind.
    ///
    /// # Panics
    ///
    /// The wheel of one worker holds up to 2^29 timers, its heap up to 2^31. Arming
    /// one more panics, and the timer is lost. The panic is on the worker if another thread arms
    /// it.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use tourbillon::runtime::{Builder, StoreKind};
    ///
    /// let runtime = Builder::new().timer_store(StoreKind::Heap).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timer_store(mut self, store: StoreKind) -> Self {
        self.config.timer_store = store;
        self
    }

    /// Sets how many threads there may be for
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking), in addition to the workers. The
    /// default is 512.
    ///
    /// The runtime starts these threads when it needs them. Once it has that many, further jobs
    /// wait in a queue.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with [`BuildError::ZeroBlockingThreads`].
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .max_blocking_threads(8)
    ///     .thread_keep_alive(Duration::from_secs(1))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.config.max_blocking_threads = threads;
        self
    }

    /// Sets after how long without work a thread of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking), or a helper, ends. The default is
    /// 10 s. With `Duration::MAX` such a thread stays until the runtime is shut down.
    pub fn thread_keep_alive(mut self, keep_alive: Duration) -> Self {
        self.config.thread_keep_alive = keep_alive;
        self
    }

    /// Sets a function that each worker thread, and each helper, calls when it starts.
    pub fn on_thread_start<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_start = Some(Arc::new(f));
        self
    }

    /// Sets a function that each worker thread, and each helper, calls before it ends.
    pub fn on_thread_stop<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_stop = Some(Arc::new(f));
        self
    }

    /// Sets for how long a callback, or one poll of a task, may hold its worker before it is
    /// reported as a stall. The default is 100 ms. `Duration::MAX` turns the reports off.
    ///
    /// Each stall is reported once: to [`on_stall`](Builder::on_stall), in
    /// [`Counts::stalls`](crate::metrics::counters::Counts::stalls), and with feature `tracing` as
    /// a warning of target `tourbillon::stall`.
    ///
    /// The default is a delay that a person notices. It is also the usual period of a CPU quota, so
    /// a worker that waits for its quota is not reported. The threshold is compared with elapsed
    /// time, not with processor time. Jobs are checked about once a ms, so a threshold of a few ms
    /// or less is not exact.
    ///
    /// Detection reads no clock for each job. If another worker is idle and watches, it finds a
    /// blocked job while the job runs. Otherwise the worker finds it when it is back in its loop,
    /// at most [`event_interval`](Builder::event_interval) jobs later, and reports the total time
    /// of these jobs: see [`Stall::jobs`].
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .stall_threshold(Duration::from_millis(20))
    ///     .build()?;
    /// assert_eq!(runtime.metrics().total().stalls, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with [`BuildError::ZeroStallThreshold`].
    pub fn stall_threshold(mut self, threshold: Duration) -> Self {
        self.config.stall_threshold = threshold.as_nanos().try_into().unwrap_or(u64::MAX);
        self
    }

    /// Sets a function that is called with each stall: each job that holds its worker for longer
    /// than [`stall_threshold`](Builder::stall_threshold).
    ///
    /// The thread that detects the stall calls it: another worker, or the worker itself after the
    /// job has ended. Keep the function short, because that worker does nothing else meanwhile. If
    /// it panics, the panic is caught and counted in
    /// [`Counts::panics`](crate::metrics::counters::Counts::panics).
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let (sender, stalls) = mpsc::channel();
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .worker_threads(1)
    ///     .stall_threshold(Duration::from_millis(10))
    ///     .on_stall(move |stall| {
    ///         eprintln!("{stall}");
    ///         let _ = sender.send(stall.clone());
    ///     })
    ///     .build()?;
    /// runtime.spawn(async { thread::sleep(Duration::from_millis(30)) });
    /// let stall = stalls.recv().unwrap();
    /// assert!(stall.elapsed >= Duration::from_millis(10));
    /// assert!(stall.spawned.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_stall<F>(mut self, f: F) -> Self
    where
        F: Fn(&Stall) + Send + Sync + 'static,
    {
        self.config.on_stall = Some(Arc::new(f));
        self
    }

    /// Sets by which system call workers wait for the next deadline. Only tests need this.
    pub fn precise_wait(mut self, wait: PreciseWait) -> Self {
        self.precise_wait = wait;
        self
    }

    /// Sets whether the runtime starts with a paused clock, for tests. The default is `false`. See
    /// [`time::pause`](crate::time::paused::pause).
    ///
    /// ```
    /// use tourbillon::{Runtime, time::{Duration, Instant, sleep}};
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = Runtime::builder().start_paused(true).build()?;
    /// runtime.block_on(async {
    ///     let start = Instant::now();
    ///     sleep(Duration::from_secs(3600)).await;
    ///     assert_eq!(start.elapsed(), Duration::from_secs(3600));
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_paused(mut self, start_paused: bool) -> Self {
        self.start_paused = start_paused;
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// # Errors
    ///
    /// Returns an error if an option has an invalid value, or if the system refuses a thread or a
    /// descriptor. Each worker needs four descriptors, a helper three, and the runtime two.
    ///
    /// # Panics
    ///
    /// Panics if the function given to [`thread_name_fn`](Builder::thread_name_fn) panics.
    pub fn build(self) -> Result<Runtime, BuildError> {
        build::build(&self)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("worker_threads", &self.worker_threads)
            .field("cores", &self.cores)
            .field("pin", &self.pin)
            .field("thread_stack_size", &self.config.thread_stack_size)
            .field("event_interval", &self.config.event_interval)
            .field("global_queue_interval", &self.config.global_queue_interval)
            .field("max_timers", &self.config.max_timers)
            .field("timer_store", &self.config.timer_store)
            .field("rescue_grace", &self.config.rescue_grace)
            .field(
                "spin_before",
                &Duration::from_nanos(self.config.spin_before),
            )
            .field(
                "timer_advance",
                &Duration::from_nanos(self.config.timer_advance),
            )
            .field("helpers", &(self.config.helpers.0..=self.config.helpers.1))
            .field("max_blocking_threads", &self.config.max_blocking_threads)
            .field("thread_keep_alive", &self.config.thread_keep_alive)
            .field(
                "stall_threshold",
                &Duration::from_nanos(self.config.stall_threshold),
            )
            .field("precise_wait", &self.precise_wait)
            .field("start_paused", &self.start_paused)
            .finish_non_exhaustive()
    }
}
