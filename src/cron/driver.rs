//! What carries out what a [`Job`] says: alarms and runs, on whatever has them.

use std::{
    any::Any,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use tourbillon_shards::TypeName;

use super::{
    builder::Cron,
    error::CronError,
    handle::CronJob,
    job::{End, Job, Lane, Occurrence, Todo},
};
use crate::{
    error::ArmError,
    runtime::{lock, this_job_is},
    timer::Cancel,
};

/// What a job needs of a runtime.
pub(super) trait Host: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> SystemTime;

    /// Calls [`Ring::ring`] on a worker once the wall clock says `at`, also if it was put there.
    /// Early or late does no harm. There is room for it, whatever bound there is on timers: a job
    /// that runs is not to end for want of it. If the runtime has been shut down, or is before it
    /// rings, `ring` is dropped, which is how the job hears of it.
    fn set_alarm(&self, at: SystemTime, ring: Ring) -> Alarm;

    /// Calls [`Run::run`] on a worker, which contains its panics, and never on the caller's stack.
    /// If the runtime is shut down before, `run` is dropped.
    fn run(&self, run: Run);
}

/// Whatever stands for an alarm that was set: dropping it cancels the alarm, and does nothing to
/// one that rings or has rung.
pub(super) type Alarm = Box<dyn Any + Send>;

/// What jobs run. Runs may overlap: it is shared.
pub(super) type Callback = Arc<dyn Fn(&Occurrence) + Send + Sync>;

pub(super) struct Driver {
    host: Box<dyn Host>,
    /// The type of the callback, as its user knows it.
    name: &'static TypeName,
    state: Mutex<State>,
}

struct State {
    job: Job,
    /// Gone when the job has ended, so that what it holds is dropped then.
    f: Option<Callback>,
    alarm: Option<Alarm>,
    /// How many alarms were decided on, and which of them `alarm` is: one may ring, and be followed
    /// by the next, before who set it has put it here.
    decided: u64,
    stored: u64,
}

/// What an ended job has no more use for. Dropped without the lock: destructors are foreign code,
/// and that of an alarm ends in [`Ring`]'s.
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
    /// Starts a job on `host`, of a callback that goes by `name`.
    pub(super) fn launch(
        &self,
        host: Box<dyn Host>,
        name: &'static TypeName,
        f: Callback,
    ) -> Result<CronJob, CronError> {
        let job = Job::new(self.schedule(), self.policy, host.now());
        let Some(first) = job.next() else {
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
        driver.set_alarm(first, 1);
        match driver.look(Job::end) {
            Some(End::Shutdown) => Err(ArmError::Shutdown.into()),
            _ => Ok(CronJob::new(driver)),
        }
    }
}

impl Driver {
    /// Runs `f` on the state, and drops what the job then has no more use for.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let (answer, leftover) = {
            let mut state = lock(&self.state);
            (f(&mut state), state.leftover())
        };
        drop(leftover);
        answer
    }

    /// Runs `f` on the job, to look at it.
    pub(super) fn look<R>(&self, f: impl FnOnce(&Job) -> R) -> R {
        f(&lock(&self.state).job)
    }

    pub(super) fn cancel(&self) -> Cancel {
        self.with(|state| match state.job.stop(End::Cancelled) {
            false => Cancel::Over,
            true if state.job.running() > 0 => Cancel::AfterRun,
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

    fn carry_out(self: &Arc<Self>, decide: impl FnOnce(&mut Job) -> Todo) {
        let (todo, number) = self.with(|state| {
            let todo = decide(&mut state.job);
            state.decided += u64::from(todo.alarm.is_some());
            (todo, state.decided)
        });
        if let Some(at) = todo.alarm {
            self.set_alarm(at, number);
        }
        if let Some((lane, occurrence)) = todo.run {
            self.host.run(Run {
                driver: self.clone(),
                lane,
                occurrence,
                is_taken_up: false,
            });
        }
    }

    /// Sets the alarm that was decided on as the `number`th.
    fn set_alarm(self: &Arc<Self>, at: SystemTime, number: u64) {
        let mut alarm = Some(self.host.set_alarm(at, Ring(Some(self.clone()))));
        self.with(|state| {
            if state.stored < number && state.job.end().is_none() {
                state.stored = number;
                std::mem::swap(&mut state.alarm, &mut alarm);
            }
        });
        // The one before has rung; or this one has, or is to be cancelled, since the job has ended.
        drop(alarm);
    }
}

/// An alarm's end of a job. Dropped without having rung, it says that the runtime is over.
pub(super) struct Ring(
    /// Taken by `ring` alone.
    Option<Arc<Driver>>,
);

impl Ring {
    pub(super) fn ring(mut self) {
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

/// A run that waits for a worker. Dropped without having been run, it says that the runtime is
/// over.
pub(super) struct Run {
    driver: Arc<Driver>,
    lane: Lane,
    occurrence: Occurrence,
    is_taken_up: bool,
}

impl Run {
    pub(super) fn run(mut self) {
        self.is_taken_up = true;
        let f = self.driver.with(|state| match state.job.begin() {
            true => state.f.clone(),
            false => None,
        });
        if let Some(f) = f {
            this_job_is(self.driver.name);
            f(&self.occurrence);
        }
    }
}

impl Drop for Run {
    /// The end of the run, after a panic as well.
    fn drop(&mut self) {
        if !self.is_taken_up {
            self.driver.shut_down();
        }
        let lane = self.lane;
        self.driver.carry_out(|job| job.ended(lane));
    }
}
