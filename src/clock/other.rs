//! The wall clock and the boot-time clock. If the runtime's own clock was paused, they advance with
//! it.

use tourbillon_shards::NEVER;

use crate::{
    clock::wall,
    sys,
    sys::sync::atomic::{AtomicU64, Ordering},
};

/// A clock other than the runtime's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherClock {
    /// The wall clock, in ns since [`wall`]'s epoch.
    Wall,
    /// The boot-time clock: time since the machine was started, in ns.
    Boot,
}

impl OtherClock {
    /// Returns the time of the kernel's clock.
    pub(crate) fn real(self) -> u64 {
        match self {
            OtherClock::Wall => wall::nanos(sys::clock::wall()),
            OtherClock::Boot => sys::clock::boot(),
        }
    }
}

/// The differences between these clocks and the runtime's clock once that was paused: clock minus
/// runtime clock, in wrapping ns.
#[derive(Debug, Default)]
pub(crate) struct Offsets([AtomicU64; 2]);

impl Offsets {
    /// Makes `clock` show `shown` when the runtime's clock shows `now`.
    pub(crate) fn set(&self, clock: OtherClock, shown: u64, now: u64) {
        // The difference wraps: the clock may show less than the runtime's clock.
        self.0[clock as usize].store(shown.wrapping_sub(now), Ordering::SeqCst);
    }

    /// Returns what `clock` shows when the runtime's clock shows `now`.
    pub(crate) fn shown(&self, clock: OtherClock, now: u64) -> u64 {
        // `NEVER` means "no deadline", so the clock stops one short of it.
        let offset = self.0[clock as usize].load(Ordering::SeqCst);
        clamp_wrapping(now.wrapping_add(offset), NEVER - 1)
    }

    /// Returns what the runtime's clock shows when `clock` shows `moment`: zero if that is in the
    /// past of the runtime's clock, and [`NEVER`] if it is beyond its range.
    pub(crate) fn own(&self, clock: OtherClock, moment: u64) -> u64 {
        if moment == NEVER {
            return NEVER;
        }
        let offset = self.0[clock as usize].load(Ordering::SeqCst);
        clamp_wrapping(moment.wrapping_sub(offset), NEVER)
    }
}

/// Clamps a wrapping sum or difference of two numbers of 61 bits to `0..=last`.
fn clamp_wrapping(nanos: u64, last: u64) -> u64 {
    (nanos as i64).clamp(0, last as i64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_translate_between_clocks_and_saturate() {
        let offsets = Offsets::default();
        for (shown, now) in [(0, 0), (1_000, 5), (5, 1_000), (NEVER - 1, 7)] {
            offsets.set(OtherClock::Wall, shown, now);
            assert_eq!(offsets.shown(OtherClock::Wall, now), shown);
            assert_eq!(offsets.own(OtherClock::Wall, shown), now);
            assert_eq!(offsets.own(OtherClock::Wall, NEVER), NEVER);
        }
        offsets.set(OtherClock::Wall, 5, 1_000);
        assert_eq!(offsets.shown(OtherClock::Wall, 10), 0);
        offsets.set(OtherClock::Wall, 1_000, 5);
        assert_eq!(offsets.own(OtherClock::Wall, 3), 0);
        assert_eq!(offsets.shown(OtherClock::Wall, NEVER), NEVER - 1);
        // Set back so far that later moments are beyond the range of the runtime's clock.
        offsets.set(OtherClock::Wall, 5, NEVER - 1);
        assert_eq!(offsets.own(OtherClock::Wall, 5), NEVER - 1);
        assert_eq!(offsets.own(OtherClock::Wall, 6), NEVER);
        assert_eq!(offsets.own(OtherClock::Wall, 1_000), NEVER);
    }
}
