//! What a job is, and when it is due.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tourbillon_cron::{Cron, CronError};

#[cfg(feature = "json")]
use crate::queue::QueueError;
pub use crate::traceparent::{is_traceparent, parse_traceparent};

/// A moment on the store's clock, in microseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// Makes a moment from microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the moment that is later by `delay`, rounded up to a microsecond.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(micros_up(delay)))
    }

    /// Returns the moment that is later by `delay`, rounded down to a microsecond.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn after_rounded_down(self, delay: Duration) -> Self {
        let micros = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Returns how much later this is than `earlier`; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// Returns the machine's wall clock, rounded down.
    pub fn wall() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(now.map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// Rounds up, so that nothing becomes earlier.
fn micros_up(delay: Duration) -> i64 {
    i64::try_from(delay.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// Returns a length in whole microseconds, for a store. A very long one is shortened: stores add it
/// to a time, which must not overflow.
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) fn micros(length: Duration) -> i64 {
    micros_up(length).min(i64::MAX / 4)
}

/// Rounds up to a microsecond. Moments before 1970 become 1970.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, micros_up))
    }
}

/// Moments before 1970 become 1970.
impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        UNIX_EPOCH + Duration::from_micros(u64::try_from(time.0).unwrap_or(0))
    }
}

/// A cron pattern in a time zone.
#[derive(Clone)]
pub struct Repeat {
    pattern: String,
    zone: String,
    /// The parsed pattern, or what is wrong with it. A stored pattern may be of another version of
    /// the program.
    cron: Arc<Result<Cron, String>>,
}

impl Repeat {
    /// Parses a pattern, such as `0 9 * * MON-FRI`, in a time zone, such as `Europe/Paris`.
    ///
    /// # Errors
    ///
    /// Fails if the pattern or the name of the zone is wrong.
    pub fn parse(pattern: &str, zone: &str) -> Result<Self, CronError> {
        Ok(Self {
            pattern: pattern.to_owned(),
            zone: zone.to_owned(),
            cron: Arc::new(Ok(Cron::parse(pattern)?.time_zone(zone)?)),
        })
    }

    /// Makes the pattern of a stored job. This version of the program may find it invalid.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn stored(pattern: String, zone: String) -> Self {
        let cron = Cron::parse(&pattern).and_then(|cron| cron.time_zone(&zone));
        Self {
            pattern,
            zone,
            cron: Arc::new(cron.map_err(|error| error.to_string())),
        }
    }

    /// Returns what is wrong with the pattern of a stored job.
    pub(crate) fn error(&self) -> Option<&str> {
        (*self.cron).as_ref().err().map(String::as_str)
    }

    /// Returns the pattern, as it was given.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Returns the first occurrence later than `time`, or `None` if there is none.
    pub fn next_after(&self, time: Time) -> Option<Time> {
        let next = (*self.cron)
            .as_ref()
            .ok()?
            .schedule()
            .next_after(time.into())?;
        Some(next.into())
    }
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Repeat({:?}, {:?})", self.pattern, self.zone)
    }
}

impl PartialEq for Repeat {
    fn eq(&self, other: &Self) -> bool {
        (&self.pattern, &self.zone) == (&other.pattern, &other.zone)
    }
}

impl Eq for Repeat {}

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// At a moment of the store's clock. A moment in the past means at once.
    At(Time),
    /// After a delay. The store counts it on its own clock, from the arrival of the request.
    In(Duration),
    /// At each occurrence of a cron pattern.
    Cron(Repeat),
}

impl When {
    /// Returns the moment, if the store's clock shows `now`. Returns `None` if a pattern has no
    /// further occurrence.
    pub fn resolve(&self, now: Time) -> Option<Time> {
        match self {
            Self::At(at) => Some(*at),
            Self::In(delay) => Some(now.after(*delay)),
            Self::Cron(repeat) => repeat.next_after(now),
        }
    }

    /// Returns from when the moment is counted, if the store's clock shows `now`. Returns `None` if
    /// the client gave the moment.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    pub(crate) fn counted(&self, now: Time) -> Option<Time> {
        match self {
            Self::At(_) => None,
            Self::In(_) | Self::Cron(_) => Some(now),
        }
    }

    /// Returns the cron pattern, if there is one.
    pub fn repeat(&self) -> Option<&Repeat> {
        match self {
            Self::Cron(repeat) => Some(repeat),
            _ => None,
        }
    }
}

impl From<Time> for When {
    fn from(time: Time) -> Self {
        Self::At(time)
    }
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        Self::At(time.into())
    }
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        Self::In(delay)
    }
}

impl From<Repeat> for When {
    fn from(repeat: Repeat) -> Self {
        Self::Cron(repeat)
    }
}

/// A job that a client hands to a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewJob {
    /// The name of the job. A store has at most one job of a key.
    pub key: String,
    /// Which handler runs the job. It is empty for a job without a kind.
    pub kind: String,
    /// Which nodes run the job: those that have this queue.
    pub queue: String,
    /// Of the jobs that are due, those with the lowest number begin first.
    pub priority: u8,
    /// What the handler gets.
    pub payload: Vec<u8>,
    /// When the job is due.
    pub when: When,
    /// How long the key stays taken after the job is done: see [`unique_for`](Self::unique_for). A
    /// time of zero is none.
    pub unique_for: Option<Duration>,
    /// The trace context of who adds the job: see [`traceparent`](Self::traceparent).
    pub traceparent: Option<String>,
}

/// The name of the queue of a job that gets no other one.
pub const DEFAULT_QUEUE: &str = "default";

/// The number of the lowest priority. That of the highest one is 0.
pub const LOWEST_PRIORITY: u8 = 9;

/// The priority of a job that gets no other one.
pub const DEFAULT_PRIORITY: u8 = 4;

impl NewJob {
    /// Makes a job without a kind, in the [default queue](DEFAULT_QUEUE), of the
    /// [default priority](DEFAULT_PRIORITY).
    pub fn new(key: impl Into<String>, when: impl Into<When>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            key: key.into(),
            kind: String::new(),
            queue: DEFAULT_QUEUE.into(),
            priority: DEFAULT_PRIORITY,
            payload: payload.into(),
            when: when.into(),
            unique_for: None,
            traceparent: None,
        }
    }

    /// Makes a job of the kind of its arguments, which are its payload, as JSON: see [`JobArgs`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_jobs::{JobArgs, NewJob};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Mail {
    ///     to: String,
    /// }
    ///
    /// impl JobArgs for Mail {
    ///     const KIND: &'static str = "mail";
    /// }
    ///
    /// let mail = Mail { to: "ann".into() };
    /// let job = NewJob::with_args("mail/7", Duration::ZERO, &mail)?.queue("mails");
    /// assert_eq!(job.kind, "mail");
    /// assert_eq!(job.payload, br#"{"to":"ann"}"#);
    /// # Ok::<(), tourbillon_jobs::QueueError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`QueueError::Args`] if the arguments cannot be written as JSON.
    #[cfg(feature = "json")]
    pub fn with_args<A: JobArgs>(
        key: impl Into<String>,
        when: impl Into<When>,
        args: &A,
    ) -> Result<Self, QueueError> {
        const { assert!(!A::KIND.is_empty(), "the arguments of a job have a kind") };
        let payload =
            serde_json::to_vec(args).map_err(|error| QueueError::Args(Arc::new(error)))?;
        Ok(Self::new(key, when, payload).kind(A::KIND))
    }

    /// Sets the kind: only nodes that have a handler of this kind run the job.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the queue: only nodes that have it run the job. A node limits how many jobs of a queue
    /// run at once: see [`NodeBuilder::queue`](crate::node::NodeBuilder::queue).
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the priority, from 0, the highest, to [`LOWEST_PRIORITY`]. The default is 4.
    ///
    /// Of the jobs that are due, a node begins those of the highest priority first. So jobs of a
    /// lower one wait while there are always enough of a higher one.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Keeps the key taken for this time after the job is done, by the store's clock. Until then,
    /// [`schedule`](crate::Queue::schedule) adds no job of the key:
    /// [`Scheduled::Exists`](crate::store::Scheduled::Exists) says when it is free.
    ///
    /// Only a job that is done keeps its key. One that a client cancels leaves it at once. One that
    /// is dead has it until it is cancelled, as each job in the store has its key.
    /// [`cancel`](crate::Queue::cancel) frees a key that is kept, and
    /// [`schedule_or_replace`](crate::Queue::schedule_or_replace) does not wait for it. A cron job
    /// is done only if its pattern has no further occurrence. A time of zero is none.
    #[must_use]
    pub fn unique_for(mut self, time: Duration) -> Self {
        self.unique_for = Some(time);
        self
    }

    /// Lets the job carry the trace context of who adds it, as a W3C `traceparent`, such as
    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. Each attempt has it:
    /// [`Attempt::traceparent`](crate::node::Attempt::traceparent). A job that is moved keeps it,
    /// and one that takes the place of another one has its own. A cron job has it for as long as it
    /// repeats.
    ///
    /// The job is refused if this has another form than [`is_traceparent`] says. For a header,
    /// which anybody may have written, use [`parse_traceparent`].
    ///
    /// Nodes of version 4 of the tables run the job without it. On PostgreSQL, a client of version
    /// 4 that replaces the job leaves it to the new one, which then is in the wrong trace. So
    /// upgrade clients before you use this.
    #[must_use]
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// Returns how long the key is kept after the job is done, unless this is no time at all.
    pub(crate) fn kept(&self) -> Option<Duration> {
        self.unique_for.filter(|time| !time.is_zero())
    }

    /// Returns which version of the tables nodes have to know to run the job. Those of versions 1
    /// and 2 know no kinds, queues and priorities, and those of version 3 no keys that stay taken.
    pub(crate) fn version(&self) -> u8 {
        let is_plain = self.kind.is_empty()
            && self.queue == DEFAULT_QUEUE
            && self.priority == DEFAULT_PRIORITY;
        match (self.kept(), is_plain) {
            (Some(_), _) => 4,
            (None, false) => 3,
            (None, true) => 1,
        }
    }
}

/// The arguments of the jobs of a kind: the payload of such a job has them as JSON.
///
/// [`Queue::schedule_args`](crate::Queue::schedule_args) adds a job, and
/// [`NodeBuilder::on`](crate::node::NodeBuilder::on) runs it. [`NewJob::with_args`] makes one that
/// may have more.
///
/// Jobs wait while programs change. So a new field needs `#[serde(default)]`, and other changes
/// need another kind. Programs of the older form refuse what they do not know, such as a new
/// variant of an enum, and the job dies. So let all nodes know the new form before a client writes
/// it.
#[cfg(feature = "json")]
pub trait JobArgs: serde::Serialize + serde::de::DeserializeOwned + Send + 'static {
    /// The name of the kind: 1 to [`MAX_KIND`](crate::queue::MAX_KIND) bytes, and no control
    /// characters. No other kind of the store may have it. If it is empty, the program does not
    /// compile.
    const KIND: &'static str;
}

/// A number that rises with each holder of a job: the fencing token.
///
/// A resource that remembers the highest token of each key, and refuses lower ones, sees no effect
/// of a handler whose node was taken for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a job does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It waits for its time.
    Waiting,
    /// A handler runs it, or ran it on a node that has ended.
    Running,
    /// All attempts failed. It stays until it is cancelled or rescheduled.
    Dead,
}

/// A job as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the job.
    pub key: String,
    /// Which handler runs the job. It is empty for a job without a kind.
    pub kind: String,
    /// The name of its queue.
    pub queue: String,
    /// The priority: 0 is the highest.
    pub priority: u8,
    /// What the handler gets.
    pub payload: Vec<u8>,
    /// The moment for which the job was scheduled. Retries do not change it.
    pub due: Time,
    /// When the next attempt may begin.
    pub at: Time,
    /// How many attempts have begun.
    pub attempts: u32,
    /// The pattern and the time zone of a cron job.
    pub repeat: Option<Repeat>,
    /// The error of the last attempt that failed.
    pub error: Option<String>,
    /// What the job does at present.
    pub state: State,
    /// The trace context of who added the job: see [`NewJob::traceparent`].
    pub traceparent: Option<String>,
}

impl Job {
    /// Leaves out all but the first `most` bytes of the payload and of the error, and no part of a
    /// character of the error.
    #[must_use]
    pub fn cut(mut self, most: usize) -> Self {
        self.payload.truncate(most);
        if let Some(error) = &mut self.error {
            let mut ends = (0..=most.min(error.len())).rev();
            let end = ends.find(|&end| error.is_char_boundary(end));
            error.truncate(end.unwrap_or(0));
        }
        self
    }
}
