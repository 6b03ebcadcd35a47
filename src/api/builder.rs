//! How a runtime is made.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use tourbillon_shards::store::StoreKind;

use crate::{
    api::{build, runtime::Runtime},
    engine::{config::Config, watchdog::stall::Stall},
    error::BuildError,
};

/// How workers wait for the next deadline: see [`Builder::precise_wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreciseWait {
    /// By `epoll_pwait2` for up to 10 ms, where the kernel has it (Linux 5.11), otherwise by a timerfd.
    /// (The kernel lets `epoll_pwait2` be late by a thousandth of the time.)
    #[default]
    Auto,
    /// By a timerfd always.
    Timerfd,
}

/// Makes a [`Runtime`] to measure. The names are tokio's where tokio has the thing.
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
    /// The defaults: one worker for each usable core, pinned to it.
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

    /// How many workers there are. By default one for each core that the affinity mask and the CPU
    /// quota allow.
    pub fn worker_threads(mut self, workers: usize) -> Self {
        self.worker_threads = Some(workers);
        self
    }

    /// Whether workers are pinned to cores (they are, by default). A thread that a worker starts
    /// inherits its core, unless it is moved. Even so they are not where there
    /// would be more workers than cores, or where a CPU quota and not the mask limits them: which
    /// of its cores to use is then better left to the kernel.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// The cores that workers are pinned to, the first worker to the first; there are as many
    /// workers unless [`worker_threads`](Builder::worker_threads) says otherwise. Cores may be
    /// named more than once, and are used in turn if there are more workers.
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// The name of the worker threads, all of them. By default `tourbillon-0` and so on.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.thread_name = Arc::new(move |_| name.clone());
        self
    }

    /// The name of each worker thread, by the worker's number.
    pub fn thread_name_fn<F>(mut self, name: F) -> Self
    where
        F: Fn(usize) -> String + Send + Sync + 'static,
    {
        self.thread_name = Arc::new(name);
        self
    }

    /// The stack size of the worker threads, and of those for
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking), in bytes. By default the standard library's.
    /// Callbacks and tasks run on it: one that is too small ends the process, and below 64 KiB the workers
    /// themselves may be too much for it.
    pub fn thread_stack_size(mut self, bytes: usize) -> Self {
        self.config.thread_stack_size = Some(bytes);
        self
    }

    /// After how many jobs a busy worker looks at its timers and sockets. By default 61.
    pub fn event_interval(mut self, jobs: u32) -> Self {
        self.config.event_interval = jobs;
        self
    }

    /// After how many jobs a busy worker looks at the queue of work from outside. By default 31.
    pub fn global_queue_interval(mut self, jobs: u32) -> Self {
        self.config.global_queue_interval = jobs;
        self
    }

    /// How late a timer may be before another worker takes it, if its own is stuck in a callback or in
    /// the poll of a task. By default 50 µs. The other has itself woken earlier by what that takes, as it has learned (see
    /// [`timer_advance`](Builder::timer_advance)), and earlier by some of this, since it may take longer; so it takes the timer
    /// between its deadline and this, or a little after that.
    ///
    /// Others look after a worker that has not been in its loop for 4 ms, and from then on each ms (if they
    /// find nothing, each 4 ms in the end), and when a timer is late by this. So for what is due in the
    /// first 4 ms, and for sockets, it takes up to 4 ms more. With `Duration::MAX` nobody does, and timers
    /// and sockets wait for their own worker, unless that is in
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
    ///     // It should not, but it does.
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

    /// Has a worker that has nothing else to do sleep only until `before` its next deadline, and look at the
    /// clock, its sockets and the queues without a pause from then on: a timer is not late by the kernel's
    /// wake-up then, which is tens of microseconds, but by one such look, which is a few. By default zero: it
    /// sleeps, unless the deadline is nearer than a sleep costs.
    ///
    /// It costs up to `before` of processor time for each wake-up by a deadline, and a core that is never
    /// idle where deadlines are closer to each other than that; so it is for few workers whose cores nobody
    /// else needs. 100 to 200 µs cover the wake-up of most machines. On a paused clock nothing spins.
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

    /// By how much earlier than its next deadline a worker has itself woken at most. By default 100 µs.
    ///
    /// The kernel ends a sleep late, by 5 µs on some machines and by 30 to 100 on others, and by about as much each
    /// time. A worker learns from its own sleeps by how much it is at the least, nearly, and sleeps that much less. Where the
    /// kernel is quicker than that for once, the worker waits for the deadline awake, as with
    /// [`spin_before`](Builder::spin_before), and learns that it has to be less. So timers are late by a few µs on a
    /// runtime that has nothing else to do, for some 2 µs of processor time each; and none is ever early. It is the same
    /// for one that looks after another worker, which is stuck, and is woken for a timer of that one.
    ///
    /// `Duration::ZERO` turns it off: no sleep ends before its deadline, but those that something else ends. There is
    /// none on a clock that is or was [paused](crate::time::paused::pause), nor before a timer that has a
    /// [tolerance](crate::timer::builder::TimerBuilder::tolerance).
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    ///
    /// // A machine whose cores take long to leave their deepest sleep.
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

    /// How many helpers there may be: threads that come when all workers are stuck, in callbacks that
    /// block or compute for long, and do what the workers should. By default none, `0..=0`: then nothing
    /// can help where no worker is left to. With `0..=n` one is started the first time that all workers are
    /// awake at once, and waits; `n` is how many may be stuck in their turn. One that was not called for the
    /// [keep-alive](Builder::thread_keep_alive) ends, as long as another thread is there to be called.
    /// With a lower bound so many are there from the start.
    ///
    /// Helpers are not pinned. They have no timers and sockets of their own, and run what they find until
    /// there is no more. They are not called as long as the workers are well, however busy.
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
    ///     // The only worker: nobody else is there, but a helper.
    ///     thread::sleep(Duration::from_secs(1));
    /// });
    /// assert_eq!(receiver.recv(), Ok("in time"));
    /// assert!(runtime.metrics().num_helpers() >= 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn helpers(mut self, helpers: RangeInclusive<usize>) -> Self {
        self.config.helpers = (*helpers.start(), *helpers.end());
        self
    }

    /// How many callback timers may be pending at once; past that, `try_after` and its kind refuse.
    /// By default there is no bound. A timer counts until it is over: cancelled, or run to the end of
    /// its callback. Sleeps do not count, and neither are `after` and its kind refused, which have no
    /// way to say so: they count, and may exceed the bound.
    pub fn max_timers(mut self, timers: usize) -> Self {
        self.config.max_timers = Some(timers);
        self
    }

    /// Sets the data structure in which each worker keeps its timers, and the runtime those on the wall
    /// clock and the boot-time clock. The default is [`StoreKind::Wheel`]; change it only if a measurement
    /// says so. Both kinds keep deadlines to the nanosecond, and take any deadline.
    ///
    /// - [`StoreKind::Wheel`]: a lazy hierarchical wheel. The cost of an operation hardly depends on the
    ///   number of timers. Now and then one operation sorts the timers that come due next, which takes some
    ///   tens of microseconds.
    /// - [`StoreKind::Heap`]: a 4-ary heap. No operation takes much longer than another, and a timer that is
    ///   cancelled or moved leaves nothing behind.
    ///
    /// A worker's wheel holds up to 2^29 timers, its heap 2^31. One more is lost, with a panic in the
    /// thread that arms it, or on the worker if it is armed elsewhere.
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

    /// How many threads there may be for [`spawn_blocking`](crate::task::blocking::spawn_blocking), besides the
    /// workers; past that, what is given to it waits for its turn. By default 512. They are started when
    /// they are needed.
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

    /// After how long without work such a thread ends. By default 10 s; with `Duration::MAX` it stays
    /// until the runtime is shut down.
    pub fn thread_keep_alive(mut self, keep_alive: Duration) -> Self {
        self.config.thread_keep_alive = keep_alive;
        self
    }

    /// Called on each worker thread when it starts.
    pub fn on_thread_start<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_start = Some(Arc::new(f));
        self
    }

    /// Called on each worker thread before it ends.
    pub fn on_thread_stop<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_stop = Some(Arc::new(f));
        self
    }

    /// For how long a callback or one poll of a task may keep its worker from its timers and sockets;
    /// what takes longer is reported, once: to [`on_stall`](Builder::on_stall), in
    /// [`Counts::stalls`](crate::metrics::counters::Counts::stalls), and with feature `tracing` as a warning of
    /// target `tourbillon::stall`. By default 100 ms. That is what a person begins to notice, and the
    /// period of CPU quotas: what they make a worker wait at a time is less, and it is real time that
    /// counts here, not what the worker has of its core. `Duration::MAX` turns it off. A threshold of
    /// less than some ms says little: jobs are looked at about once in a ms.
    ///
    /// No clock is read for it per job. A stuck job is found while it runs if another worker has nothing
    /// to do and watches, and otherwise when the worker is back in its loop, at most
    /// [`event_interval`](Builder::event_interval) jobs later. What these took together is what is
    /// reported then: see [`Stall::jobs`].
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
    /// Zero is refused by [`build`](Builder::build), with [`BuildError::ZeroStallThreshold`].
    pub fn stall_threshold(mut self, threshold: Duration) -> Self {
        self.config.stall_threshold = threshold.as_nanos().try_into().unwrap_or(u64::MAX);
        self
    }

    /// Called with each job that keeps its worker for longer than
    /// [`stall_threshold`](Builder::stall_threshold), on the thread that noticed: another worker's, or
    /// the worker's own when the job is over. It is to be quick, as that worker does nothing else
    /// meanwhile. A panic of it is caught, and counted in
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

    /// How workers wait for the next deadline; there is no need to say, but for tests.
    pub fn precise_wait(mut self, wait: PreciseWait) -> Self {
        self.precise_wait = wait;
        self
    }

    /// Whether the runtime's clock is paused from the start, for tests: see
    /// [`time::pause`](crate::time::paused::pause). By default it runs.
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

    /// Builds the runtime, and starts its workers.
    ///
    /// # Errors
    ///
    /// If an option was given a value that it cannot have, or the system refuses a thread or a
    /// descriptor: each worker needs four, a helper three, and the runtime two.
    ///
    /// # Panics
    ///
    /// With what the function given to [`thread_name_fn`](Builder::thread_name_fn) panics with.
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
