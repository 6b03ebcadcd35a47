//! The reports of a runtime, as its owner has them.

use std::time::{Duration, SystemTime};

use crate::{
    api::{dump::Dump, runtime::Runtime},
    engine::{
        blocking::pool::BlockingJob,
        config::RuntimeFlavor,
        id::Id,
        telemetry::polls::PollTimes,
        watchdog::stall::{RecentStall, Stall},
    },
    error::NotPaused,
    flight::FlightRecorder,
    metrics::{Activity, JobName, RuntimeMetrics},
    timer::look::Timers,
};

/// Gives the runtime the reports of its `Handle`, under the names that they have there.
macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty)?) $(-> $answer:ty)?;)*) => {
        /// The reports and the clocks. Each of these methods is also one of
        /// [`Handle`](crate::Handle).
        ///
        /// ```
        /// # fn main() -> Result<(), tourbillon::BuildError> {
        /// let runtime = tourbillon::runtime::Builder::new().name("shop").build()?;
        /// let handle = runtime.handle();
        /// assert_eq!((runtime.name(), runtime.id()), (Some("shop"), handle.id()));
        /// runtime.spawn(std::future::pending::<()>());
        /// assert_eq!(runtime.dump().tasks().iter().count(), handle.dump().tasks().iter().count());
        /// # Ok(())
        /// # }
        /// ```
        impl Runtime {
            $(
                $(#[$doc])*
                #[doc = concat!(
                    "See [`Handle::", stringify!($name), "`]",
                    "(crate::Handle::", stringify!($name), ").",
                )]
                #[track_caller]
                pub fn $name(&self $(, $argument: $type)?) $(-> $answer)? {
                    self.handle().$name($($argument)?)
                }
            )*
        }
    };
}

forward! {
    /// Returns the number of the runtime, which no other runtime of the process has.
    id() -> Id;
    /// Returns the name of the runtime, if it has one.
    name() -> Option<&str>;
    /// Returns which threads run the tasks and timers of the runtime.
    runtime_flavor() -> RuntimeFlavor;
    /// Returns how long ago the runtime was built.
    uptime() -> Duration;
    /// Returns a snapshot of what the runtime has done and has to do.
    metrics() -> RuntimeMetrics;
    /// Returns the current activity of each worker, with the job that it runs.
    activities() -> Vec<(Activity, Option<JobName>)>;
    /// Returns the system's numbers of the threads of the workers and helpers.
    threads() -> Vec<u32>;
    /// Returns a snapshot of the pending timers.
    timers() -> Timers;
    /// Lists the tasks of the runtime, with what each does and waits for.
    dump() -> Dump;
    /// Lists at most `most` tasks of the runtime.
    dump_at_most(most: usize) -> Dump;
    /// Returns the stalls that were reported last.
    recent_stalls() -> Vec<RecentStall>;
    /// Returns the jobs of `spawn_blocking` that run.
    blocking_jobs() -> Vec<BlockingJob>;
    /// Returns whether the job of a stall still runs.
    still_runs(stall: &Stall) -> bool;
    /// Has the workers time each poll of a task, until the result is dropped.
    time_polls() -> PollTimes;
    /// Returns the flight recorder of the runtime, which tells why a timer was late.
    flight_recorder() -> FlightRecorder;
    /// Returns the time of the runtime's wall clock.
    wall_clock() -> SystemTime;
    /// Sets the runtime's wall clock while its clock is paused.
    ///
    /// # Errors
    ///
    /// Returns [`NotPaused`] if the clock is not paused.
    ///
    set_wall_clock(time: SystemTime) -> Result<(), NotPaused>;
    /// Pauses the runtime's clock, for tests.
    pause_clock();
    /// Resumes the runtime's clock from the time that it shows.
    resume_clock();
}
