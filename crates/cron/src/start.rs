//! Starting jobs on the wall-clock timers of a runtime.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    api::{handle::Handle, runtime::Runtime},
    engine::watchdog::report::job_is,
    error::ArmError,
    integrations::cron::{
        builder::Cron,
        driver::{Alarm, Callback, Host, Ring, Run},
        error::CronError,
        handle::CronJob,
        job::Occurrence,
    },
};

impl Host for Handle {
    fn now(&self) -> SystemTime {
        self.wall_clock()
    }

    fn set_alarm(&self, at: SystemTime, ring: Ring) -> Alarm {
        Box::new(self.at_wall(at, move || ring.ring()).cancel_on_drop())
    }

    fn run(&self, run: Run) {
        self.after(Duration::ZERO, move || run.run());
    }
}

impl Cron {
    /// Starts a job on the current runtime: `f` runs on a worker at each later occurrence.
    ///
    /// # Errors
    ///
    /// Returns [`CronError::Never`] if the schedule has no occurrence. Returns [`CronError::Arm`]
    /// if there is no runtime, or if it has been shut down.
    pub fn start<F>(&self, f: F) -> Result<CronJob, CronError>
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.start_on(&current()?, f)
    }

    /// Starts a job on the runtime of `handle`. See [`start`](Cron::start).
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use tourbillon::{Runtime, cron::{Cron, Overlap}};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let (sender, ticks) = mpsc::channel();
    /// let job = Cron::parse("* * * * * *")?
    ///     .overlap(Overlap::Queue)
    ///     .start_on(runtime.handle(), move || _ = sender.send("tick"))?;
    /// assert_eq!(ticks.recv(), Ok("tick"));
    /// job.cancel();
    /// # Ok::<(), tourbillon::cron::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`start`](Cron::start).
    pub fn start_on<F>(&self, handle: &Handle, f: F) -> Result<CronJob, CronError>
    where
        F: Fn() + Send + Sync + 'static,
    {
        let f: Callback = Arc::new(move |_| f());
        self.launch(Box::new(handle.clone()), job_is::<F>, f)
    }

    /// Starts a job whose callback gets the [`Occurrence`] that it runs for. See
    /// [`start`](Cron::start).
    ///
    /// # Errors
    ///
    /// See [`start`](Cron::start).
    pub fn start_with<F>(&self, f: F) -> Result<CronJob, CronError>
    where
        F: Fn(&Occurrence) + Send + Sync + 'static,
    {
        self.start_with_on(&current()?, f)
    }

    /// Starts a job on the runtime of `handle`, whose callback gets its [`Occurrence`]. See
    /// [`start`](Cron::start).
    ///
    /// # Errors
    ///
    /// See [`start`](Cron::start).
    pub fn start_with_on<F>(&self, handle: &Handle, f: F) -> Result<CronJob, CronError>
    where
        F: Fn(&Occurrence) + Send + Sync + 'static,
    {
        let f: Callback = Arc::new(f);
        self.launch(Box::new(handle.clone()), job_is::<F>, f)
    }
}

fn current() -> Result<Handle, ArmError> {
    Handle::try_current().map_err(|_| ArmError::NoRuntime)
}

/// Runs `f` on a cron schedule on the current runtime. `time_zone` is an IANA name, or `UTC`. See
/// [`Cron`] for the options.
///
/// # Errors
///
/// See [`CronError`].
pub fn cron<F>(pattern: &str, time_zone: &str, f: F) -> Result<CronJob, CronError>
where
    F: Fn() + Send + Sync + 'static,
{
    Cron::parse(pattern)?.time_zone(time_zone)?.start(f)
}

impl Handle {
    /// Runs `f` on a cron schedule. `time_zone` is an IANA name, or `UTC`. See [`Cron`] for the
    /// options.
    ///
    /// ```
    /// use tourbillon::Runtime;
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let report = || println!("report");
    /// let report = runtime.handle().cron("0 9 * * MON-FRI", "Europe/Paris", report)?;
    /// println!("the next is due at {}", report.next_zoned().unwrap());
    /// # report.cancel();
    /// # Ok::<(), tourbillon::cron::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`CronError`].
    #[cfg_attr(docsrs, doc(cfg(feature = "cron")))]
    pub fn cron<F>(&self, pattern: &str, time_zone: &str, f: F) -> Result<CronJob, CronError>
    where
        F: Fn() + Send + Sync + 'static,
    {
        let cron = Cron::parse(pattern)?.time_zone(time_zone)?;
        cron.start_on(self, f)
    }
}

impl Runtime {
    /// Runs `f` on a cron schedule. See [`Handle::cron`].
    ///
    /// # Errors
    ///
    /// See [`CronError`].
    #[cfg_attr(docsrs, doc(cfg(feature = "cron")))]
    pub fn cron<F>(&self, pattern: &str, time_zone: &str, f: F) -> Result<CronJob, CronError>
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.handle().cron(pattern, time_zone, f)
    }
}
