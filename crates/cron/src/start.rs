//! Starting jobs on the wall-clock timers of a runtime.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tourbillon::{ArmError, Handle, Timer, runtime::name_job, time, timer::Outcome};

use crate::{
    builder::Cron,
    driver::{Alarm, Callback, Host, Ring, Run},
    error::CronError,
    handle::CronJob,
    job::Occurrence,
};

/// On a full runtime, how long an alarm waits at most until the job looks at the wall clock again,
/// which may have been set.
const AGAIN: Duration = Duration::from_secs(1);

impl Host for Handle {
    fn now(&self) -> SystemTime {
        self.wall_clock()
    }

    fn set_alarm(&self, at: SystemTime, ring: Ring) -> Alarm {
        let alarm = Timer::at_wall(at)
            .on(self)
            .start_with(move |how| match how {
                Outcome::Fired => ring.ring(),
                // The runtime is full. A sleep needs no room. If it rings early, the job sets its next
                // alarm for the same time.
                Outcome::Refused => drop(tourbillon::spawn(async move {
                    let left = at.duration_since(time::wall_clock()).unwrap_or_default();
                    time::sleep(left.min(AGAIN)).await;
                    ring.ring();
                })),
                _ => drop(ring),
            });
        Box::new(alarm.cancel_on_drop())
    }

    fn run(&self, run: Run) {
        // A task, since a full runtime refuses timers. It runs to its end in one poll.
        self.spawn(async move { run.run() });
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
