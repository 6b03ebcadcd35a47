//! The clocks of timers: [`Monotonic`], [`Wall`] and [`Boot`].

use std::{fmt, time::SystemTime};

use crate::{
    clock::{instant::Instant, other::OtherClock, wall, wall::BootInstant},
    engine::shared::Shared,
    timer::Timer,
};

/// A clock that a timer can be due by: [`Monotonic`], [`Wall`] or [`Boot`].
pub trait TimerClock: sealed::Sealed<Moment = Self::Instant> {
    /// A moment on this clock.
    type Instant: fmt::Debug;
}

/// The default clock. It is never set, and stands still while the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub enum Monotonic {}

/// The clock that shows the time of day. It may be set.
#[derive(Clone, Copy, Debug)]
pub enum Wall {}

/// A clock like [`Monotonic`] that also counts the time in which the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub enum Boot {}

/// A [`Timer`] of the wall clock.
pub type WallTimer = Timer<Wall>;

/// A [`Timer`] of the clock that also counts the time in which the machine is suspended.
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
    const OTHER: Option<OtherClock> = None;
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
    const OTHER: Option<OtherClock> = Some(OtherClock::Wall);
    type Moment = SystemTime;

    fn nanos(_: &Shared, instant: SystemTime) -> u64 {
        // These shards count from a fixed date, whatever the runtime's clock shows.
        wall::nanos(instant)
    }

    fn instant(_: &Shared, nanos: u64) -> SystemTime {
        wall::time(nanos)
    }
}

impl sealed::Sealed for Boot {
    const OTHER: Option<OtherClock> = Some(OtherClock::Boot);
    type Moment = BootInstant;

    fn nanos(_: &Shared, instant: BootInstant) -> u64 {
        instant.nanos()
    }

    fn instant(_: &Shared, nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }
}

pub(crate) mod sealed {
    use crate::{clock::other::OtherClock, engine::shared::Shared};

    /// The private part of a clock.
    pub trait Sealed: Sized + 'static {
        /// Which clock this is, or `None` for the clock of the runtime.
        const OTHER: Option<OtherClock>;
        /// A moment on this clock.
        type Moment;

        /// Converts a moment to the time of the shards that hold such timers, in ns.
        fn nanos(shared: &Shared, instant: Self::Moment) -> u64;

        /// Converts a time of those shards, in ns, to a moment.
        fn instant(shared: &Shared, nanos: u64) -> Self::Moment;
    }
}
