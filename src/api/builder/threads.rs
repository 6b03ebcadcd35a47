//! Options of the threads: their number, cores, names, stacks and hooks.

use std::{sync::Arc, time::Duration};

use crate::api::builder::Builder;

/// Threads: their number, cores, names, stacks and hooks.
impl Builder {
    /// Sets the number of workers. The default is one for each core that the affinity mask and the
    /// CPU quota allow, the quota rounded down. With [`follow_limits`](Builder::follow_limits), it
    /// is one for each core of the mask, and fewer take part while the quota or the mask allows
    /// less.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses zero with
    /// [`BuildError::ZeroWorkers`](crate::BuildError::ZeroWorkers), and more than 4096 with
    /// [`BuildError::TooManyWorkers`](crate::BuildError::TooManyWorkers).
    pub fn worker_threads(&mut self, workers: usize) -> &mut Self {
        self.worker_threads = Some(workers);
        self
    }

    /// Sets whether workers are pinned to cores. The default is `true`.
    ///
    /// Even then, workers are not pinned if there are more workers than cores, if a CPU quota
    /// limits their number more than the affinity mask does, or if they
    /// [follow the limits](Builder::follow_limits): the kernel chooses cores better then.
    /// [`cores`](Builder::cores) pins them in these cases, too. A thread or a process that a worker
    /// starts inherits the worker's core, unless it is started in
    /// [`with_all_cores`](crate::runtime::with_all_cores).
    pub fn pin(&mut self, pin: bool) -> &mut Self {
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
    /// with [`BuildError::CoreNotAllowed`](crate::BuildError::CoreNotAllowed). It refuses an empty
    /// list with [`BuildError::ZeroWorkers`](crate::BuildError::ZeroWorkers), unless
    /// `worker_threads` sets the number.
    pub fn cores(&mut self, cores: impl IntoIterator<Item = usize>) -> &mut Self {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// Sets whether the number of workers that take part follows what the system lets the process
    /// use. The default is `false`. A current-thread runtime follows nothing.
    ///
    /// With `true` at least one takes part, and at most as many as
    ///
    /// - the CPU quota pays for, rounded up. The quotas of the process's control group and of the
    ///   groups above it count (versions 1 and 2), as far as the process can see them, also after a
    ///   move to another group. While one allows less than the masks, no worker waits awake.
    /// - the affinity masks of the workers have cores together. A cpuset cuts them, and a core that
    ///   goes offline is in none. If several workers are [pinned](Builder::pin) to one core, there
    ///   may be more: the first ones that together have all the cores.
    /// - [`Handle::set_workers`](crate::runtime::Handle::set_workers) asks for. There you find what
    ///   the others do meanwhile.
    ///
    /// An active worker looks between two jobs, about once a second while it is awake. A look takes
    /// some tens of µs, and stall reports call it `LookAtLimits`. So nobody looks while all active
    /// workers are in long jobs, and a runtime that sleeps looks after its first work. If the
    /// system does not tell at present, the last numbers stay. A runtime whose clock was ever
    /// [paused](crate::Handle::pause_clock) follows nothing.
    ///
    /// The workers also spread a quota over time that is less than a core for each of them. The
    /// kernel stops all threads of a process that has used up the quota of a period, for up to 100
    /// ms. So if the process has used more than what 97 % of the quota pays for, its workers nap
    /// between two jobs, for at most 20 ms, and no longer than makes up for what they used
    /// themselves. After a rest, the process may use at once what the quota pays for in 20 ms.
    /// Longer jobs, other threads, a second runtime and other processes of the group may still use
    /// up the quota. [`Counts::quota_naps`](crate::metrics::counters::Counts::quota_naps) counts
    /// the naps.
    ///
    /// Workers that follow the limits are not [pinned](Builder::pin), unless you name their
    /// [cores](Builder::cores). Then those that take part stay on their cores although others may
    /// be idle, and one that has lost its core stays where the system has put it.
    ///
    /// With [`rescue_latency(Duration::MAX)`](Builder::rescue_latency), no other worker stands in
    /// for a stuck one. If only one takes part, a job that blocks until another job has run waits
    /// forever.
    ///
    /// There are never more workers than the runtime was built with: by default, one for each core
    /// of the mask, each with a thread and four descriptors. Where the machine has many more cores
    /// than the container may ever use, set [`worker_threads`](Builder::worker_threads). A
    /// [listener for each core](crate::net::TcpListener::bind_per_core) is also on workers that do
    /// not take part. A container whose quota rises has a worker for each core that it pays for:
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .follow_limits(true)
    ///     .build()?;
    /// let metrics = runtime.metrics();
    /// assert!((1..=metrics.num_workers()).contains(&metrics.active_workers()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow_limits(&mut self, follow: bool) -> &mut Self {
        self.config.follows_limits = follow;
        self
    }

    /// Sets one name for all worker threads. The default is `tourbillon-0`, `tourbillon-1` and so
    /// on.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a name with a NUL byte, with
    /// [`BuildError::ThreadName`](crate::BuildError::ThreadName).
    pub fn thread_name(&mut self, name: impl Into<String>) -> &mut Self {
        let name = name.into();
        self.thread_name = Arc::new(move |_| name.clone());
        self
    }

    /// Sets a function that returns the name of each worker thread from the worker's number.
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) refuses a name with a NUL byte, with
    /// [`BuildError::ThreadName`](crate::BuildError::ThreadName).
    pub fn thread_name_fn<F>(&mut self, name: F) -> &mut Self
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
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.config.thread_stack_size = Some(bytes);
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
    /// [`build`](Builder::build) refuses zero, with
    /// [`BuildError::ZeroBlockingThreads`](crate::BuildError::ZeroBlockingThreads).
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
    pub fn max_blocking_threads(&mut self, threads: usize) -> &mut Self {
        self.config.max_blocking_threads = threads;
        self
    }

    /// Sets after how long without work a thread of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking), or a helper, ends. The default is
    /// 10 s. With `Duration::MAX` such a thread stays until the runtime is shut down.
    pub fn thread_keep_alive(&mut self, keep_alive: Duration) -> &mut Self {
        self.config.thread_keep_alive = keep_alive;
        self
    }

    /// Sets a function that each worker thread, each helper, and each thread of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) calls when it starts.
    pub fn on_thread_start<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_start = Some(Arc::new(f));
        self
    }

    /// Sets a function that each worker thread, each helper, and each thread of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) calls before it ends.
    pub fn on_thread_stop<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_stop = Some(Arc::new(f));
        self
    }

    /// Sets a function that a worker calls before it sleeps because it has nothing to do.
    ///
    /// The function may arm timers, and spawn and wake tasks; the worker then looks at those before
    /// it sleeps. Work that arrives meanwhile waits for the function, so it should be short. A
    /// worker that [spins](Builder::spin_before) instead of sleeping does not call it, and a helper
    /// never does. A panic is caught and counted. A second call replaces the function.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    ///
    /// let sleeps = Arc::new(AtomicU64::new(0));
    /// let counter = sleeps.clone();
    /// let runtime = tourbillon::runtime::Builder::new()
    ///     .on_thread_park(move || _ = counter.fetch_add(1, Ordering::Relaxed))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_thread_park<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_park = Some(Arc::new(f));
        self
    }

    /// Sets a function that a worker calls after it has slept, before it runs its next job.
    ///
    /// Each call follows one of [`on_thread_park`](Builder::on_thread_park), also if the worker did
    /// not sleep because work had arrived.
    pub fn on_thread_unpark<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.on_thread_unpark = Some(Arc::new(f));
        self
    }
}
