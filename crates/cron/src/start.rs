//! Starting jobs on the wall-clock timers of a runtime.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tourbillon::{ArmError, Handle, Timer, runtime::name_job};

use crate::{
    builder::Cron,
    driver::{Alarm, Callback, Host, Ring, Run},
    error::CronError,
    handle::CronJob,
    job::Occurrence,
};

impl Host for Handle {
    fn now(&self) -> SystemTime {
        self.wall_clock()
    }

    fn set_alarm(&self, at: SystemTime, ring: Ring) -> Alarm {
        let alarm = Timer::at_wall(at).on(self).unbounded();
        Box::new(alarm.start(move || ring.ring()).cancel_on_drop())
    }

    fn run(&self, run: Run) {
        let run = move || run.run();
        Timer::after(Duration::ZERO).on(self).unbounded().start(run);
    }
}

impl Cron {
    /// Starts a job: `f` runs on a worker at each later occurrence.
    ///
    /// On a runtime that has been shut down, `f` is dropped and the job is over.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use tourbillon::Runtime;
    /// use tourbillon_cron::{Cron, Overlap};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let (sender, ticks) = mpsc::channel();
    /// let job = Cron::parse("* * * * * *")?
    ///     .overlap(Overlap::Queue)
    ///     .on(runtime.handle())
    ///     .start(move || _ = sender.send("tick"));
    /// assert_eq!(ticks.recv(), Ok("tick"));
    /// job.cancel();
    /// # Ok::<(), tourbillon_cron::CronError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the schedule has no occurrence, such as that of the 30th of February, or if there
    /// is no runtime; see [`on`](Cron::on).
    #[track_caller]
    pub fn start<F>(&self, f: F) -> CronJob
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.start_named(name_job::<F>, Arc::new(move |_| f()))
    }

    /// Starts a job as [`start`](Cron::start) does, or returns an error.
    ///
    /// # Errors
    ///
    /// Returns an error, and drops `f`: [`CronError::Never`] if the schedule has no occurrence,
    /// [`CronError::Arm`] if there is no runtime or it has been shut down.
    pub fn try_start<F>(&self, f: F) -> Result<CronJob, CronError>
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.try_launch(self.host()?, name_job::<F>, Arc::new(move |_| f()))
    }

    /// Starts a job whose callback gets the [`Occurrence`] that it runs for. It is otherwise like
    /// [`start`](Cron::start).
    ///
    /// # Panics
    ///
    /// See [`start`](Cron::start).
    #[track_caller]
    pub fn start_with<F>(&self, f: F) -> CronJob
    where
        F: Fn(&Occurrence) + Send + Sync + 'static,
    {
        self.start_named(name_job::<F>, Arc::new(f))
    }

    /// Starts a job whose callback gets the [`Occurrence`] that it runs for, or returns an error.
    ///
    /// # Errors
    ///
    /// See [`try_start`](Cron::try_start).
    pub fn try_start_with<F>(&self, f: F) -> Result<CronJob, CronError>
    where
        F: Fn(&Occurrence) + Send + Sync + 'static,
    {
        self.try_launch(self.host()?, name_job::<F>, Arc::new(f))
    }

    #[track_caller]
    fn start_named(&self, name: fn(), f: Callback) -> CronJob {
        match self.host().and_then(|host| self.launch(host, name, f)) {
            Ok(job) => job,
            Err(error) => panic!("{error}"),
        }
    }

    fn host(&self) -> Result<Box<dyn Host>, CronError> {
        let handle = match &self.handle {
            Some(handle) => handle.clone(),
            None => Handle::try_current().map_err(|_| ArmError::NoRuntime)?,
        };
        Ok(Box::new(handle))
    }
}
