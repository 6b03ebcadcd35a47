//! The options of a job.

use std::{str::FromStr, time::Duration};

use jiff::tz::TimeZone;
use tourbillon::Handle;

use crate::{
    error::CronError,
    pattern::Pattern,
    policy::{Missed, Overlap, Policy},
    schedule::Schedule,
};

/// A pattern with a time zone, and the policies for late and overlapping runs.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon_cron::{Cron, Missed, Overlap};
///
/// let cron = Cron::parse("0 9 * * MON-FRI")?
///     .time_zone("Europe/Paris")?
///     .overlap(Overlap::Queue)
///     .missed(Missed::Once)
///     .grace(Duration::from_secs(5));
/// let next = cron.schedule().next_after(SystemTime::now());
/// assert!(next > Some(SystemTime::now()));
/// # Ok::<(), tourbillon_cron::CronError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it runs nothing until it is started"]
pub struct Cron {
    pattern: Pattern,
    tz: TimeZone,
    pub(crate) policy: Policy,
    /// `None`: that of the thread that starts the job.
    pub(crate) handle: Option<Handle>,
}

impl Cron {
    /// Parses a pattern: five fields, six with a second in front, or a name such as `@daily`. See
    /// the [crate](crate#patterns). The time zone is UTC unless another one is set.
    ///
    /// ```
    /// use tourbillon_cron::Cron;
    ///
    /// for pattern in ["*/15 * * * *", "30 0 9 * * MON-FRI", "0 0 L * *", "@daily"] {
    ///     Cron::parse(pattern)?;
    /// }
    /// assert!(Cron::parse("0 9 * * FRY").is_err());
    /// # Ok::<(), tourbillon_cron::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`CronError::Pattern`], which names the wrong field and what it may contain.
    pub fn parse(pattern: &str) -> Result<Self, CronError> {
        Ok(Self {
            pattern: Pattern::parse(pattern)?,
            tz: TimeZone::UTC,
            policy: Policy::default(),
            handle: None,
        })
    }

    /// Sets the time zone by its IANA name, ignoring case. It comes from the system's database, or
    /// from the compiled-in one if the system has none.
    ///
    /// # Errors
    ///
    /// Returns [`CronError::TimeZone`] if the name is unknown.
    pub fn time_zone(self, name: &str) -> Result<Self, CronError> {
        let tz = TimeZone::get(name).map_err(|_| CronError::TimeZone {
            name: name.to_owned(),
        })?;
        Ok(self.tz(tz))
    }

    /// Sets the time zone by a value of jiff: `TimeZone::system()` is that of the machine,
    /// `TimeZone::fixed` has a fixed offset.
    pub fn tz(mut self, tz: TimeZone) -> Self {
        self.tz = tz;
        self
    }

    /// Sets what happens to occurrences that come due during a run. The default is
    /// [`Overlap::Skip`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.policy.overlap = overlap;
        self
    }

    /// Sets what happens to occurrences that passed while the job could not run. The default is
    /// [`Missed::Skip`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.policy.missed = missed;
        self
    }

    /// Sets how late an occurrence may run and still count as on time. The default is a minute. A
    /// later occurrence is missed.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.policy.grace = grace;
        self
    }

    /// Sets the runtime of the job. The default is the runtime that the starting thread is in.
    pub fn on(mut self, handle: &Handle) -> Self {
        self.handle = Some(handle.clone());
        self
    }

    /// Returns the schedule: the pattern in its time zone.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.pattern.clone(), self.tz.clone())
    }
}

/// Parses a pattern. See [`Cron::parse`].
impl FromStr for Cron {
    type Err = CronError;

    fn from_str(pattern: &str) -> Result<Self, CronError> {
        Self::parse(pattern)
    }
}
