//! The clocks of a machine.

use super::BEGIN;

/// The offset of the wall clock at the start, in ns. The wall clock then shows 15 January 2027.
const WALL: u64 = 1_800_000_000_000_000_000 - BEGIN;

/// The clocks of a machine, in relation to the time of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// By how many millionths the monotonic clock is faster than the time of the simulation.
    pub(crate) drift: i32,
    /// For how many ns the machine was suspended.
    pub(crate) suspended: u64,
    /// The difference of the wall clock to the monotonic clock.
    pub(crate) wall: u64,
}

/// A clock that a timerfd can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Monotonic,
    Boot,
    Wall,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            drift: 0,
            suspended: 0,
            wall: WALL,
        }
    }
}

impl Clocks {
    /// Returns what a clock shows at `now`.
    pub(crate) fn read(&self, clock: Clock, now: u64) -> u64 {
        let monotonic = match self.drift {
            0 => now,
            drift => {
                let passed = i128::from(now.saturating_sub(BEGIN));
                let ahead = passed * i128::from(drift) / 1_000_000;
                (i128::from(now) + ahead) as u64
            }
        };
        self.shift(clock).wrapping_add(monotonic)
    }

    fn shift(&self, clock: Clock) -> u64 {
        match clock {
            Clock::Monotonic => 0,
            Clock::Boot => self.suspended,
            Clock::Wall => self.wall,
        }
    }

    /// Returns the first moment at which a clock shows `at` or more, if nobody sets it.
    pub(crate) fn when(&self, clock: Clock, at: u64) -> u64 {
        // The shift is a difference by wrapping: a clock that was set back has a negative one.
        let at = i128::from(at) - i128::from(self.shift(clock) as i64);
        let at = u64::try_from(at.max(0)).unwrap_or(u64::MAX);
        if self.drift == 0 || at <= BEGIN {
            return at;
        }
        let rate = i128::from(1_000_000 + self.drift);
        let passed = (i128::from(at - BEGIN) * 1_000_000).div_euclid(rate);
        let mut moment = BEGIN.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        // The divisions round, so step to the exact moment.
        while self.read(Clock::Monotonic, moment) < at {
            moment += 1;
        }
        moment
    }

    /// Returns the moment that is so many ns after `now`, by the monotonic clock.
    pub(crate) fn ahead(&self, now: u64, nanos: u64) -> u64 {
        match self.drift {
            0 => now.saturating_add(nanos),
            _ => {
                let at = self.read(Clock::Monotonic, now).saturating_add(nanos);
                self.when(Clock::Monotonic, at)
            }
        }
    }
}
