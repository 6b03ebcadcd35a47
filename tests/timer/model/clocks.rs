//! Moments of the runtime, and the same moments as plain numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tourbillon::{
    Handle,
    time::{BootInstant, Instant},
};
use tourbillon_shards::NEVER;

/// The zero of wall clocks: 2020-01-01. Times before it have passed, however the clock is set.
const WALL_ZERO: Duration = Duration::from_secs(1_577_836_800);
/// The wall-clock time at which programs begin, 2026-01-01, in ns from `WALL_ZERO`.
pub const WALL_START: u64 = 189_388_800_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mono,
    Wall,
    Boot,
}

/// The reference points that convert times of each clock to plain numbers.
#[derive(Clone, Copy, Debug)]
pub struct Zeros {
    /// The zero of the runtime's clock.
    mono: Instant,
    boot: BootInstant,
    /// `boot` in ns.
    boot_nanos: u64,
}

impl Zeros {
    /// Finds the reference points: a binary search finds the longest delay that has a deadline.
    pub fn find(handle: &Handle) -> Self {
        let timer = handle.after(Duration::MAX, || ());
        let now = Instant::now();
        let (mut some, mut none) = (1, NEVER + 1);
        while none - some > 1 {
            let middle = some + (none - some) / 2;
            timer.reset_after(Duration::from_nanos(middle));
            *match timer.deadline() {
                Some(_) => &mut some,
                None => &mut none,
            } = middle;
        }
        timer.cancel();
        let boot = BootInstant::now();
        let end = boot + Duration::MAX;
        Self {
            mono: now - Duration::from_nanos(NEVER - 1 - some),
            boot,
            boot_nanos: NEVER - nanos(end - boot),
        }
    }

    pub fn boot_nanos(&self) -> u64 {
        self.boot_nanos
    }

    pub fn instant(&self, at: u64) -> Instant {
        self.mono + Duration::from_nanos(at)
    }

    pub fn nanos(&self, at: Instant) -> u64 {
        nanos(at - self.mono)
    }

    pub fn time(&self, at: u64) -> SystemTime {
        UNIX_EPOCH + WALL_ZERO + Duration::from_nanos(at)
    }

    pub fn wall_nanos(&self, at: SystemTime) -> u64 {
        nanos(at.duration_since(UNIX_EPOCH + WALL_ZERO).unwrap())
    }

    /// Returns `at` as a boot instant. `at` must not be before `boot`.
    pub fn boot_instant(&self, at: u64) -> BootInstant {
        self.boot + Duration::from_nanos(at - self.boot_nanos)
    }

    pub fn boot_instant_nanos(&self, at: BootInstant) -> u64 {
        self.boot_nanos + nanos(at - self.boot)
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap()
}

/// How far the other clocks are ahead of the runtime's clock, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    pub wall: i128,
    pub boot: i128,
}

impl Offsets {
    fn of(&self, kind: Kind) -> i128 {
        match kind {
            Kind::Mono => 0,
            Kind::Wall => self.wall,
            Kind::Boot => self.boot,
        }
    }

    /// Returns what a clock shows when the runtime's clock shows `now`.
    pub fn shown(&self, kind: Kind, now: u64) -> u64 {
        (i128::from(now) + self.of(kind)).clamp(0, i128::from(NEVER - 1)) as u64
    }

    /// Returns when a clock shows `moment`, as a time of the runtime's clock.
    pub fn when(&self, kind: Kind, moment: u64) -> i128 {
        i128::from(moment) - self.of(kind)
    }
}
