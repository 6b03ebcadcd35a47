//! Options of the timers and of the order of work: stores, waiting, intervals, the paused clock.

use std::time::Duration;

use tourbillon_shards::Tolerance;

use crate::{
    api::builder::Builder, engine::config::StoreKind, task::GroupBuilder, util::nanos::nanos,
};

/// The default of [`Builder::timer_budget`].
pub(super) const DEFAULT_BUDGET: f64 = 0.02;

/// Timers and the order of work.
impl Builder {
    /// Sets after how many jobs a busy worker checks its timers and sockets, at most. The default
    /// is 61. A worker whose jobs take long checks after fewer, so that it is back within a quarter
    /// of the [rescue latency](Builder::rescue_latency).
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with
    /// [`BuildError::ZeroInterval`](crate::BuildError::ZeroInterval).
    pub fn event_interval(&mut self, jobs: u32) -> &mut Self {
        self.config.event_interval = jobs;
        self
    }

    /// Sets after how many jobs a busy worker checks the global queue, which holds jobs from other
    /// threads. The default is 31.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with
    /// [`BuildError::ZeroInterval`](crate::BuildError::ZeroInterval).
    pub fn global_queue_interval(&mut self, jobs: u32) -> &mut Self {
        self.config.global_queue_interval = jobs;
        self
    }

    /// Sets the name, the shares and the latency goal of the default group of tasks. The defaults
    /// are `default`, 100 shares and no goal.
    ///
    /// They count once there is a second [group](crate::task::Group).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tourbillon::{runtime::Builder, task::Group};
    ///
    /// let api = Group::builder("api").shares(300);
    /// let runtime = Builder::new().default_group(api).build()?;
    /// let batch = Group::builder("batch").build_on(runtime.handle())?;
    /// let metrics = runtime.metrics();
    /// let names: Vec<_> = metrics.groups().iter().map(|group| group.name()).collect();
    /// assert_eq!(names, ["api", "batch"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses invalid values, with
    /// [`BuildError::DefaultGroup`](crate::BuildError::DefaultGroup).
    pub fn default_group(&mut self, group: GroupBuilder) -> &mut Self {
        self.config.default_group = group.options;
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
    /// latency of most machines. A runtime with a paused clock never spins. Under a CPU quota below
    /// the affinity mask no worker waits awake, so this option has no effect there.
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
    /// runtime.handle().at(due, move || sender.send(Instant::now()).unwrap());
    /// let late = receiver.recv().unwrap().duration_since(due);
    /// println!("late by {late:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn spin_before(&mut self, before: Duration) -> &mut Self {
        self.config.spin_before = nanos(before);
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
    /// a [tolerance](crate::timer::builder::TimerBuilder::tolerance). Under a CPU quota below the
    /// affinity mask no worker waits awake, so they compensate nothing there, either.
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
    pub fn timer_advance(&mut self, most: Duration) -> &mut Self {
        self.config.timer_advance = nanos(most);
        self
    }

    /// Sets whether an idle worker may wait awake. The default is `true`.
    ///
    /// A worker spins in three cases, each time for less than a sleep costs or for a few µs:
    ///
    /// - before a deadline that is nearer than a sleep costs in processor time (at most 50 µs), or
    ///   nearer than [`spin_before`](Builder::spin_before);
    /// - for the rest of a sleep that [`timer_advance`](Builder::timer_advance) ended early;
    /// - for some 13 µs after it has left a busy peer its only job.
    ///
    /// With `false` a worker without work always sleeps, and `spin_before` and `timer_advance` have
    /// no effect. Timers are then late by the kernel's wake-up, which takes tens of µs. This is for
    /// machines that are shared or that should save energy, and for users that watch how busy their
    /// cores look.
    ///
    /// It is `false` in any case under a CPU quota that allows less than the affinity mask: the
    /// kernel stops all threads when the quota is used up. A quota counts from 10 s after it was set,
    /// at the latest, for the runtimes that are built then, and for those that
    /// [follow](Builder::follow_limits) it.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    ///
    /// // Sleeps as much as it can: all timers may be 1 ms late.
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .spin(false)
    ///     .timer_tolerance(Duration::from_millis(1))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spin(&mut self, spin: bool) -> &mut Self {
        self.config.spin = spin;
        self
    }

    /// Sets what share of its core a worker spends on waking for timers. The default is 0.02,
    /// which is 2 %.
    ///
    /// To wake a sleeping worker costs some 3 µs of processor time on bare metal, and 20 µs and
    /// more on virtual machines; each worker measures that. As long as the budget suffices, timers
    /// are exact: late by a few µs. (Under a CPU quota below the affinity mask no worker waits
    /// awake, and they are late by the kernel's wake-up, which takes tens of µs.) When deadlines
    /// come faster, the worker sleeps until the budget pays for another wake-up, which serves all
    /// timers that came due meanwhile. So timers are late by what the machine makes necessary: by
    /// about 0.9 ms at most if a wake-up costs 18 µs, by about 0.15 ms if it costs 3. No timer is
    /// early. After a quiet time of 50 ms, a worker has a reserve for a burst of exact timers.
    ///
    /// The budget makes no timer late by more than 1 ms. So a worker spends the share, or what one
    /// wake-up a millisecond costs, if that is more. With the default, it is more if a wake-up
    /// costs over 20 µs. If there are more workers than cores, some workers share the budget of
    /// one core, and defer their wake-ups to the same moments. While the budget is spent, one of
    /// them wakes up for the timers of all, at most once each 0.8 ms.
    ///
    /// A worker that is awake for other reasons fires what is due at once, at no cost. The budget
    /// does not apply to timers with a tolerance that somebody has stated, be it zero, by
    /// [`time::with_tolerance`](crate::time::with_tolerance) or
    /// [`TimerBuilder::tolerance`](crate::timer::builder::TimerBuilder::tolerance). Nor does it
    /// apply to a runtime with a [`timer_tolerance`](Builder::timer_tolerance) or with
    /// [`spin_before`](Builder::spin_before), to timers of the wall clock and the boot-time clock, or
    /// to a clock that is or was [paused](crate::time::paused::pause).
    /// [`Counts::deferred_wakes`](crate::metrics::counters::Counts::deferred_wakes) counts the
    /// sleeps that became longer.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// // Exact for five times as many timers a second.
    /// let runtime = tourbillon::runtime::Builder::new().timer_budget(0.1).build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a share that is not above 0 and at most 1, with
    /// [`BuildError::TimerBudget`](crate::BuildError::TimerBudget).
    pub fn timer_budget(&mut self, share: f64) -> &mut Self {
        self.config.timer_budget = Some(share);
        self
    }

    /// Makes all timers of the runtime exact, whatever that costs: a worker wakes for each deadline,
    /// or waits awake if the next one is near. There is no [`timer_budget`](Builder::timer_budget).
    /// Under a CPU quota below the affinity mask no worker waits awake, and timers are late by the
    /// kernel's wake-up, which takes tens of µs. A timer with a tolerance keeps it.
    ///
    /// [`time::with_tolerance`](crate::time::with_tolerance) with [`Duration::ZERO`] does so for the
    /// timers of one future.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = tourbillon::runtime::Builder::new().exact().build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exact(&mut self) -> &mut Self {
        self.config.timer_budget = None;
        self
    }

    /// Sets how late the timers of the runtime may be, so that they share wake-ups. The default is
    /// zero: timers are exact, as long as the [budget](Builder::timer_budget) suffices. With any
    /// other value there is no budget.
    ///
    /// With a tolerance, a sleep, a time limit, an interval or a callback waits for the roundest
    /// moment between its deadline and `tolerance` after it. There it meets other timers, and one
    /// wake-up of the worker serves all of them. No timer is early. A timer is late by at most
    /// `tolerance` plus what an exact one is late. If its worker is awake anyway when the deadline
    /// has passed, the timer is due at once. Deadlines and answers are exact all the same.
    ///
    /// A tolerance of 1 ms gives the resolution of tokio, and costs much less processor time than
    /// exact timers if there are thousands of timers a second. The tolerance is rounded down, by
    /// less than a fifth.
    ///
    /// A part of a program can have another tolerance, or none: see
    /// [`time::with_tolerance`](crate::time::with_tolerance) and
    /// [`TimerBuilder::tolerance`](crate::timer::builder::TimerBuilder::tolerance). Neither this
    /// option nor `with_tolerance` applies to timers of the wall clock and of the boot-time clock,
    /// or on a clock that is or was [paused](crate::time::paused::pause): their timers are exact.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    /// use tourbillon::time::{Instant, sleep};
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .timer_tolerance(Duration::from_millis(1))
    ///     .build()?;
    /// runtime.block_on(async {
    ///     let start = Instant::now();
    ///     sleep(Duration::from_millis(5)).await;
    ///     assert!(start.elapsed() >= Duration::from_millis(5));
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn timer_tolerance(&mut self, tolerance: Duration) -> &mut Self {
        self.config.timer_tolerance = Tolerance::new(nanos(tolerance));
        self
    }

    /// Sets how many callback timers may be pending at once. By default there is no bound.
    ///
    /// [The rule](crate::timer) says how a runtime that is full refuses a timer, and
    /// [`Counts::refused`](crate::metrics::counters::Counts::refused) counts those. A timer counts
    /// until it is over. One that takes its outcome is over when it has taken it. Sleeps never
    /// count.
    ///
    /// The bound does not limit the memory of a caller that arms faster than the workers run: a
    /// refused [`start_with`](crate::timer::TimerBuilder::start_with) still allocates a timer, and
    /// queues a job that tells the callback. If the callback then starts another such timer, this
    /// goes on without a pause.
    pub fn max_timers(&mut self, timers: usize) -> &mut Self {
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
    pub fn timer_store(&mut self, store: StoreKind) -> &mut Self {
        self.config.timer_store = store.of_shard();
        self
    }

    /// Sets whether the runtime starts with a paused clock, for tests. The default is `false`. See
    /// [`time::pause`](crate::time::paused::pause).
    ///
    /// ```
    /// use tourbillon::{runtime::Builder, time::{Duration, Instant, sleep}};
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = Builder::new().start_paused(true).build()?;
    /// runtime.block_on(async {
    ///     let start = Instant::now();
    ///     sleep(Duration::from_secs(3600)).await;
    ///     assert_eq!(start.elapsed(), Duration::from_secs(3600));
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_paused(&mut self, start_paused: bool) -> &mut Self {
        self.start_paused = start_paused;
        self
    }
}
