//! When a timer runs.

use std::time::Duration;

use crate::{
    clock::instant::Instant,
    engine::clocks::owner::SKIP_ON_STEP,
    error::ArmError,
    timer::clock::{Monotonic, TimerClock},
};

/// When a timer runs: [`Once`], or [`Every`].
pub trait Schedule: sealed::Sealed {}

/// A timer that runs once.
#[derive(Clone, Copy, Debug)]
pub struct Once<C: TimerClock> {
    delay: Duration,
    at: Option<C::Instant>,
    pub(crate) on_step: OnStep,
}

/// A timer that runs again and again.
#[derive(Clone, Copy, Debug)]
pub struct Every {
    period: Duration,
    pub(crate) times: Option<u64>,
}

/// What becomes of a wall-clock timer when the clock is set to after its deadline, so that the moment
/// it waits for never comes. (Set to that very moment, it runs. One that is armed for what has passed
/// runs as well: nothing jumped over it.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStep {
    /// It runs at once: its deadline has passed.
    #[default]
    Fire,
    /// It does not run, and ends as cancelled.
    Skip,
}

/// A moment on the clock that a schedule goes by.
pub(crate) type Moment<S> = <<S as sealed::Sealed>::Clock as TimerClock>::Instant;

/// What a schedule comes to, in the terms of the shards.
#[derive(Debug)]
pub struct Plan {
    /// Its delay or period.
    pub(crate) wait: Duration,
    /// Its deadline, if that is not counted from the start.
    pub(crate) deadline: Option<u64>,
    pub(crate) recurring: bool,
    pub(crate) tag: u32,
}

pub(crate) mod sealed {
    use super::{Moment, Plan};
    use crate::{error::ArmError, timer::clock::TimerClock};

    /// What the crate knows of a schedule.
    pub trait Sealed {
        /// The clock that it goes by.
        type Clock: TimerClock;

        /// What it comes to; `nanos` is what the clock's moments are.
        fn plan(&self, nanos: impl Fn(&Moment<Self>) -> u64) -> Plan;

        /// What is wrong with it, if anything is.
        fn flaw(&self) -> Option<ArmError> {
            None
        }
    }
}

impl<C: TimerClock> Once<C> {
    /// So long after it is started.
    pub(crate) fn after(delay: Duration) -> Self {
        Self {
            delay,
            at: None,
            on_step: OnStep::Fire,
        }
    }

    /// At a moment of its clock.
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
            deadline: self.at.as_ref().map(nanos),
            recurring: false,
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
            wait: self.period.max(Duration::from_nanos(1)),
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
