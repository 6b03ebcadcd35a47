//! How a timer may end.
//!
//! The storm, the soak and the simulation share this file. A timer ends exactly once:
//!
//! - Its callback runs. A recurring timer ends with its last run.
//! - The runtime answers that it has cancelled the timer. If the callback takes an outcome, it also
//!   takes "cancelled", before the answer or after it.
//! - The runtime shuts down. Only a callback that takes an outcome learns of that.

/// How a timer ended, or one part of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its callback ran at the deadline.
    Run,
    /// The runtime answered that the timer was cancelled.
    Cancelled,
    /// Its callback took the outcome "cancelled".
    Told,
    /// Its callback took the outcome "shutdown".
    Shutdown,
}

impl End {
    /// Returns the unit of this end's count.
    fn unit(self) -> u32 {
        match self {
            End::Run => 1,
            End::Cancelled => 1 << 6,
            End::Told => 1 << 12,
            End::Shutdown => 1 << 18,
        }
    }
}

/// The callback takes an outcome: a cancelled timer ends with the cancel and the outcome.
const TAKES_OUTCOME: u32 = 1 << 31;
/// A count stops here, so that repeated ends do not overflow into the next one.
const MOST: u32 = 63;

/// The ends of one timer: how often each was recorded. Bits 24 to 30 are free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ends(pub(super) u32);

impl Ends {
    /// Returns the ends of a new timer, whose callback may take an outcome.
    pub fn new(takes_outcome: bool) -> Self {
        Self(if takes_outcome { TAKES_OUTCOME } else { 0 })
    }

    /// Returns whether the callback takes an outcome.
    pub fn takes_outcome(self) -> bool {
        self.0 & TAKES_OUTCOME != 0
    }

    fn count(self, end: End) -> u32 {
        self.0 / end.unit() % (MOST + 1)
    }

    /// Returns whether this end was recorded.
    pub fn has(self, end: End) -> bool {
        self.count(end) > 0
    }

    /// Adds an end, this often.
    #[must_use]
    pub fn with(self, end: End, times: usize) -> Self {
        let room = MOST - self.count(end);
        let more = u32::try_from(times).map_or(room, |times| times.min(room));
        Self(self.0 + more * end.unit())
    }

    /// Returns whether the timer is over: it has ended, and each part of its end was recorded.
    pub fn is_over(self) -> bool {
        self.has(End::Run)
            || self.has(End::Shutdown)
            || self.has(End::Cancelled) && (self.has(End::Told) || !self.takes_outcome())
    }

    /// Returns whether the timer has ended at most once, and in a way in which it may end.
    pub fn are_right(self) -> bool {
        let [runs, cancels, tells, shutdowns] =
            [End::Run, End::Cancelled, End::Told, End::Shutdown].map(|end| self.count(end));
        runs + cancels + shutdowns <= 1
            && runs + tells + shutdowns <= 1
            && (tells + shutdowns == 0 || self.takes_outcome())
    }
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [runs, cancels, tells, shutdowns] =
            [End::Run, End::Cancelled, End::Told, End::Shutdown].map(|end| self.count(end));
        write!(
            f,
            "{runs} runs, {cancels} cancels, told {tells} times, shut down {shutdowns} times"
        )
    }
}
