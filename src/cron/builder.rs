//! What a job is made from.

use std::{str::FromStr, time::Duration};

use jiff::tz::TimeZone;

use super::{
    error::CronError,
    pattern::Pattern,
    policy::{Missed, Overlap, Policy},
    schedule::Schedule,
};

/// A pattern, with a time zone and what is to happen when things do not go by the clock.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon::cron::{Cron, Missed, Overlap};
///
/// let cron = Cron::parse("0 9 * * MON-FRI")?
///     .time_zone("Europe/Paris")?
///     .overlap(Overlap::Queue)
///     .missed(Missed::Once)
///     .grace(Duration::from_secs(5));
/// let next = cron.schedule().next_after(SystemTime::now());
/// assert!(next > Some(SystemTime::now()));
/// # Ok::<(), tourbillon::cron::CronError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it runs nothing until it is started"]
pub struct Cron {
    pattern: Pattern,
    tz: TimeZone,
    pub(super) policy: Policy,
}

impl Cron {
    /// Reads a pattern: five fields, or six with a second before them, or a name such as `@daily`;
    /// see the [module](super). Its time zone is UTC until another is given.
    ///
    /// ```
    /// use tourbillon::cron::Cron;
    ///
    /// for pattern in ["*/15 * * * *", "30 0 9 * * MON-FRI", "0 0 L * *", "0 8 * * MON#1", "@daily"] {
    ///     Cron::parse(pattern)?;
    /// }
    /// assert!(Cron::parse("0 9 * * FRY").is_err());
    /// # Ok::<(), tourbillon::cron::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CronError::Pattern`], which says which field is wrong and what would be right.
    pub fn parse(pattern: &str) -> Result<Self, CronError> {
        Ok(Self {
            pattern: Pattern::parse(pattern)?,
            tz: TimeZone::UTC,
            policy: Policy::default(),
        })
    }

    /// The time zone by its IANA name, in any case: from the system's database or, where there is
    /// none, from the one that is compiled in.
    ///
    /// # Errors
    ///
    /// [`CronError::TimeZone`], if neither has it.
    pub fn time_zone(self, name: &str) -> Result<Self, CronError> {
        let tz = TimeZone::get(name).map_err(|_| CronError::TimeZone {
            name: name.to_owned(),
        })?;
        Ok(self.tz(tz))
    }

    /// The time zone, as jiff has it: `TimeZone::system()` is the machine's, `TimeZone::fixed` one
    /// of a fixed offset.
    pub fn tz(mut self, tz: TimeZone) -> Self {
        self.tz = tz;
        self
    }

    /// What becomes of occurrences that come due while a run is in progress:
    /// [`Overlap::Skip`] unless this says otherwise.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.policy.overlap = overlap;
        self
    }

    /// What becomes of occurrences that passed while nobody could run them: [`Missed::Skip`] unless
    /// this says otherwise.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.policy.missed = missed;
        self
    }

    /// Returns how late an occurrence may be taken up and still be on time rather than missed: a
    /// minute unless this says otherwise.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.policy.grace = grace;
        self
    }

    /// When it would run: the pattern in its time zone.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.pattern.clone(), self.tz.clone())
    }
}

/// As [`Cron::parse`].
impl FromStr for Cron {
    type Err = CronError;

    fn from_str(pattern: &str) -> Result<Self, CronError> {
        Self::parse(pattern)
    }
}
