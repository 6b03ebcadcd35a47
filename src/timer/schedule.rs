//! When a timer runs: once, or again and again.

use std::time::Duration;

use crate::{
    clock::instant::Instant,
    engine::clocks::shard::SKIP_ON_STEP,
    error::ArmError,
    timer::clock::{Monotonic, TimerClock},
};

/// The schedule of a timer: [`Once`], or [`Every`].
pub trait Schedule: sealed::Sealed {}

/// The schedule of a timer that runs once.
#[derive(Clone, Copy, Debug)]
pub struct Once<C: TimerClock> {
    delay: Duration,
    at: Option<C::Instant>,
    pub(crate) on_step: OnStep,
}

/// The schedule of a timer that runs again and again.
#[derive(Clone, Copy, Debug)]
pub struct Every {
    period: Duration,
    pub(crate) times: Option<u64>,
}

/// What happens to a wall-clock timer when the clock is set forward past its deadline.
///
/// The timer runs in any case if the clock is set to exactly its deadline, and if its deadline had
/// passed when it was armed: the clock did not skip those deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStep {
    /// The timer runs at once, because its deadline has passed. The default.
    #[default]
    Fire,
    /// The timer does not run, and ends as cancelled.
    Skip,
}

/// A moment on the clock of schedule `S`.
pub(crate) type Moment<S> = <<S as sealed::Sealed>::Clock as TimerClock>::Instant;

/// A schedule as the shards need it.
#[derive(Debug)]
pub struct Plan {
    /// The delay or period.
    pub(crate) wait: Duration,
    /// The deadline, if it does not count from the start.
    pub(crate) deadline: Option<u64>,
    pub(crate) recurring: bool,
    /// Bits beside those of the group.
    pub(crate) tag: u32,
}

pub(crate) mod sealed {
    use super::{Moment, Plan};
    use crate::{error::ArmError, timer::clock::TimerClock};

    /// The private part of a schedule.
    pub trait Sealed {
        /// The clock of the timer.
        type Clock: TimerClock;

        /// Returns the plan of this schedule. `nanos` converts a moment of the clock to ns.
        fn plan(&self, nanos: impl Fn(&Moment<Self>) -> u64) -> Plan;

        /// Returns why the timer cannot be armed, or `None`.
        fn flaw(&self) -> Option<ArmError> {
            None
        }
    }
}

impl<C: TimerClock> Once<C> {
    /// Returns a schedule that is due `delay` after the start.
    pub(crate) fn after(delay: Duration) -> Self {
        Self {
            delay,
            at: None,
            on_step: OnStep::Fire,
        }
    }

    /// Returns a schedule that is due at `moment`.
    pub(crate) fn at(moment: C::Instant) -> Self {
        Self {
            delay: Duration::ZERO,
            at: Some(moment),
            on_step: OnStep::Fire,
        }
    }
}

impl<C: TimerClock> Schedule for Once<C> where C::Instant: Copy {}

impl<C: TimerClock> sealed::Sealed for Once<C>
where
    C::Instant: Copy,
{
    type Clock = C;

    fn plan(&self, nanos: impl Fn(&C::Instant) -> u64) -> Plan {
        Plan {
            wait: self.delay,
            // Without a moment, the deadline counts from the start of the timer.
            deadline: self.at.as_ref().map(nanos),
            recurring: false,
            // The tag stays with the timer. The worker that serves the clock after a step reads it.
            tag: match self.on_step {
                OnStep::Fire => 0,
                OnStep::Skip => SKIP_ON_STEP,
            },
        }
    }
}

impl Every {
    pub(crate) fn new(period: Duration) -> Self {
        let times = None;
        Self { period, times }
    }
}

impl Schedule for Every {}

impl sealed::Sealed for Every {
    type Clock = Monotonic;

    fn plan(&self, _: impl Fn(&Instant) -> u64) -> Plan {
        Plan {
            // A builder method that cannot fail also starts a timer with a period of zero.
            wait: self.period.max(Duration::from_nanos(1)),
            // The first deadline is one period after the start.
            deadline: None,
            recurring: true,
            tag: 0,
        }
    }

    fn flaw(&self) -> Option<ArmError> {
        match self {
            Every { period, .. } if period.is_zero() => Some(ArmError::ZeroPeriod),
            Every { times: Some(0), .. } => Some(ArmError::ZeroTimes),
            _ => None,
        }
    }
}
