//! The clocks by which timers are due.

use std::{fmt, time::SystemTime};

use crate::{
    clock::{instant::Instant, wall, wall::BootInstant},
    engine::{clocks::owner::ClockCore, core::Core, shared::Shared},
    timer::Timer,
};

/// A clock by which timers are due: [`Monotonic`], [`Wall`] or [`Boot`].
pub trait TimerClock: sealed::Sealed<Moment = Self::Instant> {
    /// A moment on this clock.
    type Instant: fmt::Debug;
}

/// The clock that goes at the rate of real time, and stands still while the machine is suspended. It
/// is never set: the default.
#[derive(Clone, Copy, Debug)]
pub enum Monotonic {}

/// The clock that tells the time of day, which may be set.
#[derive(Clone, Copy, Debug)]
pub enum Wall {}

/// As [`Monotonic`], but it goes on while the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub enum Boot {}

/// A [`Timer`] that is due by the time of day.
pub type WallTimer = Timer<Wall>;

/// A [`Timer`] that is due by the time since the machine was started, suspended or not.
pub type BootTimer = Timer<Boot>;

impl TimerClock for Monotonic {
    type Instant = Instant;
}

impl TimerClock for Wall {
    type Instant = SystemTime;
}

impl TimerClock for Boot {
    type Instant = BootInstant;
}

impl sealed::Sealed for Monotonic {
    type Owner = Core;
    type Moment = Instant;

    #[inline]
    fn nanos(shared: &Shared, instant: Instant) -> u64 {
        shared.clock.nanos(instant)
    }

    fn instant(shared: &Shared, nanos: u64) -> Instant {
        shared.clock.instant(nanos)
    }
}

impl sealed::Sealed for Wall {
    type Owner = ClockCore;
    type Moment = SystemTime;

    fn nanos(_: &Shared, instant: SystemTime) -> u64 {
        wall::nanos(instant)
    }

    fn instant(_: &Shared, nanos: u64) -> SystemTime {
        wall::time(nanos)
    }
}

impl sealed::Sealed for Boot {
    type Owner = ClockCore;
    type Moment = BootInstant;

    fn nanos(_: &Shared, instant: BootInstant) -> u64 {
        instant.nanos()
    }

    fn instant(_: &Shared, nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }
}

pub(crate) mod sealed {
    use crate::engine::{core::TimerOwner, shared::Shared};

    /// What the crate knows of a clock.
    pub trait Sealed: Sized + 'static {
        /// Who owns the shards of its timers.
        type Owner: TimerOwner;
        /// Its moments.
        type Moment;

        /// A moment, in the ns of those shards.
        fn nanos(shared: &Shared, instant: Self::Moment) -> u64;

        /// The moment of a deadline.
        fn instant(shared: &Shared, nanos: u64) -> Self::Moment;
    }
}
