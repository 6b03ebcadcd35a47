//! Errors of cron jobs.

use std::{error::Error, fmt};

use tourbillon::ArmError;

/// The reason why a pattern, a time zone or a job is not valid.
///
/// ```
/// use tourbillon_cron::{Cron, CronError, Field};
///
/// let error = Cron::parse("0 25 * * *").unwrap_err();
/// assert!(matches!(&error, CronError::Pattern { field: Some(Field::Hour), .. }));
/// assert!(error.to_string().contains("hour: 0 to 23"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CronError {
    /// The pattern cannot be read.
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// The wrong field, if a single field is wrong.
        field: Option<Field>,
        /// The reason.
        reason: String,
    },
    /// The time zone is unknown: neither the system's database nor the compiled-in one has it.
    TimeZone {
        /// The name as given.
        name: String,
    },
    /// The pattern never matches, such as the 30th of February.
    Never {
        /// The pattern as given.
        pattern: String,
    },
    /// The job's timer was not armed: the runtime has been shut down, or the calling thread is not
    /// in the context of one.
    Arm(ArmError),
}

/// A field of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Seconds: 0 to 59. The first of six fields. A pattern of five fields has second 0.
    Second,
    /// Minutes: 0 to 59.
    Minute,
    /// Hours: 0 to 23.
    Hour,
    /// Days of the month: 1 to 31, `L`, `15W`, `LW`.
    DayOfMonth,
    /// Months: 1 to 12, `JAN` to `DEC`.
    Month,
    /// Days of the week: 0 to 7 (both are Sunday), `SUN` to `SAT`, `FRI#2`, `FRIL`.
    DayOfWeek,
}

impl Field {
    /// All fields, in the order of a pattern of six.
    pub(crate) const ALL: [Self; 6] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::DayOfMonth,
        Self::Month,
        Self::DayOfWeek,
    ];

    /// Returns the name of the field and its allowed values.
    fn allowed(self) -> &'static str {
        match self {
            Self::Second => "second: 0 to 59",
            Self::Minute => "minute: 0 to 59",
            Self::Hour => "hour: 0 to 23",
            Self::DayOfMonth => {
                "day of the month: 1 to 31, `L` (the last), `15W` (the weekday nearest to the \
                 15th), `LW` (the last weekday)"
            }
            Self::Month => "month: 1 to 12, or JAN to DEC",
            Self::DayOfWeek => {
                "day of the week: 0 to 7 (0 and 7 are Sunday), or SUN to SAT, `FRI#2` (the second \
                 Friday of the month), `FRIL` (its last)"
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = self.allowed().split_once(':').expect("each has one");
        f.write_str(name)
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern {
                pattern,
                field: Some(field),
                reason,
            } => write!(
                f,
                "the cron pattern {pattern:?}, {field}: {reason} (right is {}; and lists `1,2`, \
                 ranges `1-5` from low to high, steps `*/2` and `1-9/2`)",
                field.allowed()
            ),
            Self::Pattern {
                pattern,
                field: None,
                reason,
            } => write!(
                f,
                "the cron pattern {pattern:?}: {reason} (right is `minute hour day-of-month month \
                 day-of-week`, such as \"0 9 * * MON-FRI\"; the same with a second before it; or \
                 one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually)"
            ),
            Self::TimeZone { name } => write!(
                f,
                "no time zone {name:?} in the system's database or the one compiled in: names are \
                 those of IANA, such as \"Europe/Paris\", \"America/New_York\" or \"UTC\""
            ),
            Self::Never { pattern } => write!(
                f,
                "the cron pattern {pattern:?} matches no instant: there is no such day in any year \
                 to come"
            ),
            Self::Arm(error) => write!(f, "the job was not started: {error}"),
        }
    }
}

impl Error for CronError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Arm(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ArmError> for CronError {
    fn from(error: ArmError) -> Self {
        Self::Arm(error)
    }
}
