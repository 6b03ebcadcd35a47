//! The driver of a job: performs the decisions of [`Job`] by alarms and runs on a [`Host`].

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tourbillon::{
    ArmError,
    timer::{Cancel, Outcome},
};

use crate::{
    builder::Cron,
    error::CronError,
    handle::CronJob,
    job::{End, Job, Lane, Occurrence, Todo},
};

/// The services of a runtime that a job needs.
pub(crate) trait Host: Send + Sync + 'static {
    /// Returns the time of the wall clock.
    fn now(&self) -> SystemTime;

    /// Arms an alarm that calls [`Ring::ring`] on a worker once the wall clock shows `at`, also if
    /// the clock is set there. Ringing early or late does no harm.
    ///
    /// No limit on timers applies, so that a running job does not end because of one. If the
    /// runtime has been shut down, or is shut down before the alarm rings, it drops `ring`, which
    /// ends the job.
    fn set_alarm(&self, at: SystemTime, ring: Ring) -> Alarm;

    /// Calls [`Run::run`] on a worker, which catches its panics, and never on the caller's stack.
    /// If the runtime is shut down before, it drops `run`.
    fn run(&self, run: Run);
}

/// An armed alarm. Dropping it cancels the alarm, unless it is ringing or has rung.
pub(crate) type Alarm = Box<dyn Any + Send>;

/// The callback of a job. It is shared, because runs may overlap.
pub(crate) type Callback = Arc<dyn Fn(&Occurrence) + Send + Sync>;

pub(crate) struct Driver {
    host: Box<dyn Host>,
    /// Names the running job by the type of the user's callback.
    name: fn(),
    state: Mutex<State>,
}

struct State {
    job: Job,
    /// `None` once the job has ended, so that the callback's captures are dropped then.
    f: Option<Callback>,
    alarm: Option<Alarm>,
    /// The number of alarms decided on so far, and the number of the alarm in `alarm`. An alarm may
    /// ring and be followed by the next one before the thread that armed it stores it here.
    decided: u64,
    stored: u64,
}

/// The parts that an ended job no longer needs. They are dropped after unlocking: destructors are
/// user code, and that of an alarm calls [`Ring`]'s, which locks again.
type Leftover = (Option<Callback>, Option<Alarm>);

impl State {
    fn leftover(&mut self) -> Leftover {
        match self.job.end() {
            Some(_) => (self.f.take(), self.alarm.take()),
            None => (None, None),
        }
    }
}

impl Cron {
    /// Starts a job on `host`. `name` names the running job by the type of the callback. On a
    /// runtime that has been shut down, the job is over.
    pub(crate) fn launch(
        &self,
        host: Box<dyn Host>,
        name: fn(),
        f: Callback,
    ) -> Result<CronJob, CronError> {
        let job = Job::new(self.schedule(), self.policy, host.now());
        // Most such patterns are mistakes, for example the 30th of February.
        let Some(first) = job.next_at() else {
            return Err(CronError::Never {
                pattern: job.schedule().pattern().to_owned(),
            });
        };
        let driver = Arc::new(Driver {
            host,
            name,
            state: Mutex::new(State {
                job,
                f: Some(f),
                alarm: None,
                decided: 1,
                stored: 0,
            }),
        });
        // If the runtime has been shut down, this drops the alarm's `Ring`, which ends the job.
        driver.set_alarm(first, 1);
        Ok(CronJob::new(driver))
    }

    /// Starts a job like [`launch`](Cron::launch), or fails if the runtime has been shut down.
    pub(crate) fn try_launch(
        &self,
        host: Box<dyn Host>,
        name: fn(),
        f: Callback,
    ) -> Result<CronJob, CronError> {
        let job = self.launch(host, name, f)?;
        match job.outcome() {
            Some(Outcome::Shutdown) => Err(ArmError::Shutdown.into()),
            _ => Ok(job),
        }
    }
}

impl Driver {
    /// Locks the state. It is consistent even after a panic, so poisoning is ignored.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` on the state under the lock. If the job has ended, drops what it no longer needs
    /// after unlocking.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let (answer, leftover) = {
            let mut state = self.lock();
            (f(&mut state), state.leftover())
        };
        drop(leftover);
        answer
    }

    /// Calls `f` on the job, for reading.
    pub(crate) fn with_job<R>(&self, f: impl FnOnce(&Job) -> R) -> R {
        f(&self.lock().job)
    }

    pub(crate) fn cancel(&self) -> Cancel {
        self.with(|state| match state.job.stop(End::Cancelled) {
            false => Cancel::Over,
            true if state.job.num_running() > 0 => Cancel::AfterRun,
            true => Cancel::Cancelled,
        })
    }

    fn shut_down(&self) {
        self.with(|state| state.job.stop(End::Shutdown));
    }

    fn wake(self: &Arc<Self>) {
        let now = self.host.now();
        self.carry_out(|job| job.wake(now));
    }

    /// Performs what the job decides: arms the next alarm, and starts a run.
    fn carry_out(self: &Arc<Self>, decide: impl FnOnce(&mut Job) -> Todo) {
        let (todo, number) = self.with(|state| {
            let todo = decide(&mut state.job);
            state.decided += u64::from(todo.alarm.is_some());
            (todo, state.decided)
        });
        // Unlocked: the alarm may ring at once, and then locks again.
        if let Some(at) = todo.alarm {
            self.set_alarm(at, number);
        }
        if let Some((lane, occurrence)) = todo.run {
            self.host.run(Run {
                driver: self.clone(),
                lane,
                occurrence,
                has_started: false,
            });
        }
    }

    /// Arms the alarm that was decided on as the `number`th.
    fn set_alarm(self: &Arc<Self>, at: SystemTime, number: u64) {
        let mut alarm = Some(self.host.set_alarm(at, Ring(Some(self.clone()))));
        self.with(|state| {
            // Another thread may have decided on a later alarm meanwhile. The later decision
            // counts.
            if state.stored < number && state.job.end().is_none() {
                state.stored = number;
                std::mem::swap(&mut state.alarm, &mut alarm);
            }
        });
        // Drop outside of the lock. This is the previous alarm, which has rung, or the new one, if
        // a later one is stored already or the job has ended.
        drop(alarm);
    }
}

/// The part of an alarm that belongs to the job. If it is dropped without ringing, the runtime has
/// shut down.
pub(crate) struct Ring(
    /// `None` once it has rung.
    Option<Arc<Driver>>,
);

impl Ring {
    pub(crate) fn ring(mut self) {
        if let Some(driver) = self.0.take() {
            driver.wake();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(driver) = self.0.take() {
            driver.shut_down();
        }
    }
}

/// A run that waits for a worker. If it is dropped without running, the runtime has shut down.
pub(crate) struct Run {
    driver: Arc<Driver>,
    lane: Lane,
    occurrence: Occurrence,
    has_started: bool,
}

impl Run {
    pub(crate) fn run(mut self) {
        self.has_started = true;
        // The callback runs unlocked: it may ask its own job, or cancel it.
        let f = self.driver.with(|state| match state.job.begin() {
            true => state.f.clone(),
            false => None,
        });
        if let Some(f) = f {
            (self.driver.name)();
            f(&self.occurrence);
        }
    }
}

impl Drop for Run {
    /// Ends the run, also after a panic.
    fn drop(&mut self) {
        // Dropped without a run: the runtime was shut down.
        if !self.has_started {
            self.driver.shut_down();
        }
        let lane = self.lane;
        self.driver.carry_out(|job| job.ended(lane));
    }
}
