//! Options for workers that are stuck: rescue, helpers, and reports of stalls.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use crate::{api::builder::Builder, engine::watchdog::stall::Stall, util::nanos::nanos};

/// Workers that are stuck: rescue, helpers, and reports of stalls.
impl Builder {
    /// Sets how late the work of a blocked worker may be: the bound for all that it owes, on a
    /// machine where another thread gets a core at once. The default is 1 ms, the least 200 µs.
    ///
    /// A worker is blocked while it does not return from a callback or from the poll of a task. An
    /// idle peer then takes over its timers, its sockets, its queue and the task that it would run
    /// next. The peer is called when the worker has not been in its loop for three quarters of the
    /// latency, and from then on at each deadline and at least as often. A worker that is back in
    /// its loop within a quarter of the latency calls no peer.
    ///
    /// A shorter latency costs a busy worker more: it sets a timer of the system about twice in
    /// each latency. A peer visits a blocked worker about 1.3 times in each latency.
    ///
    /// With `Duration::MAX` no peer takes anything over: timers and sockets wait for their own
    /// worker, unless that worker is in
    /// [`block_in_place`](crate::task::blocking::block_in_place). (The queue can be stolen as
    /// always.)
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .worker_threads(2)
    ///     .rescue_latency(Duration::from_micros(500))
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
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses less than 200 µs, with
    /// [`BuildError::RescueLatency`](crate::BuildError::RescueLatency).
    pub fn rescue_latency(&mut self, latency: Duration) -> &mut Self {
        self.config.rescue_latency = latency;
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
    /// [`BuildError::Helpers`](crate::BuildError::Helpers).
    pub fn helpers(&mut self, helpers: RangeInclusive<usize>) -> &mut Self {
        self.config.helpers = (*helpers.start(), *helpers.end());
        self
    }

    /// Sets for how long a callback, or one poll of a task, may hold its worker before it is
    /// reported as a stall. The default is 100 ms. `Duration::MAX` turns the reports off.
    ///
    /// Each stall is counted once, in
    /// [`Counts::stalls`](crate::metrics::counters::Counts::stalls). It is reported to
    /// [`on_stall`](Builder::on_stall), and with feature `tracing` as a warning of target
    /// `tourbillon::stall`: when it is found, and again when it is over.
    ///
    /// The default is a delay that a person notices. It is also the usual period of a CPU quota, so
    /// a worker that waits for its quota is not reported. The threshold is compared with elapsed
    /// time, not with processor time. Jobs are checked about once in each
    /// [rescue latency](Builder::rescue_latency), so a threshold of a few of these or less is not
    /// exact.
    ///
    /// Detection reads no clock for each job. If another worker is idle and watches, it finds a
    /// blocked job while the job runs. Otherwise the worker finds it when it is back in its loop,
    /// at most [`event_interval`](Builder::event_interval) jobs later. If it is then not known
    /// which of these jobs took the time, the report [names none](Stall::jobs), and the workers
    /// time each job for a minute.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .stall_threshold(Duration::from_millis(20))
    ///     .build()?;
    /// assert_eq!(runtime.metrics().total().stalls(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero, with
    /// [`BuildError::ZeroStallThreshold`](crate::BuildError::ZeroStallThreshold).
    pub fn stall_threshold(&mut self, threshold: Duration) -> &mut Self {
        self.config.stall_threshold = nanos(threshold);
        self
    }

    /// Sets a function that is called with each stall: each job that holds its worker for longer
    /// than [`stall_threshold`](Builder::stall_threshold).
    ///
    /// The thread that detects the stall calls it: another worker, or the worker itself after the
    /// job has ended. A job that still [runs](Stall::is_running) is reported again when it is over,
    /// with the same [number](Stall::number) and its whole length. Keep the function short, because
    /// that worker does nothing else meanwhile. If it panics, the panic is caught and counted in
    /// [`Counts::panics`](crate::metrics::counters::Counts::panics). The crate `tourbillon-stacks`
    /// adds the line that blocks.
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
    /// assert!(stall.job.unwrap().spawned.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_stall<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn(&Stall) + Send + Sync + 'static,
    {
        self.config.on_stall = Some(Arc::new(f));
        self
    }
}
