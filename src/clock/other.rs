//! The clocks that are not the runtime's own: the time of day, and the time since the machine was
//! started. Where the runtime's clock was paused they go with it.

use tourbillon_shards::NEVER;

use crate::{
    clock::wall,
    sys,
    sys::sync::atomic::{AtomicU64, Ordering},
};

/// Which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherClock {
    /// The time of day, in ns since [`wall`]'s epoch.
    Wall,
    /// The time since the machine was started, in ns.
    Boot,
}

impl OtherClock {
    /// What the kernel's clock shows.
    pub(crate) fn real(self) -> u64 {
        match self {
            OtherClock::Wall => wall::nanos(sys::clock::wall()),
            OtherClock::Boot => sys::clock::boot(),
        }
    }
}

/// How much more the other clocks show than the runtime's, (wrapping) in ns, once that was paused.
#[derive(Debug, Default)]
pub(crate) struct Offsets([AtomicU64; 2]);

impl Offsets {
    /// Makes the other clock show `shown` where the runtime's shows `now`.
    pub(crate) fn set(&self, clock: OtherClock, shown: u64, now: u64) {
        self.0[clock as usize].store(shown.wrapping_sub(now), Ordering::SeqCst);
    }

    /// What the other clock shows where the runtime's shows `now`.
    pub(crate) fn shown(&self, clock: OtherClock, now: u64) -> u64 {
        let offset = self.0[clock as usize].load(Ordering::SeqCst);
        between(now.wrapping_add(offset), NEVER - 1)
    }

    /// What the runtime's clock will show where the other shows `moment`: zero for what was before, and
    /// [`NEVER`] for what it does not live to see.
    pub(crate) fn own(&self, clock: OtherClock, moment: u64) -> u64 {
        if moment == NEVER {
            return NEVER;
        }
        let offset = self.0[clock as usize].load(Ordering::SeqCst);
        between(moment.wrapping_sub(offset), NEVER)
    }
}

/// The sum or difference of two numbers of 61 bits, from zero to `last`.
fn between(nanos: u64, last: u64) -> u64 {
    (nanos as i64).clamp(0, last as i64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_differ_by_their_offsets_within_what_they_can_show() {
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
        // Set back so far that this is beyond the end of the runtime's clock.
        offsets.set(OtherClock::Wall, 5, NEVER - 1);
        assert_eq!(offsets.own(OtherClock::Wall, 5), NEVER - 1);
        assert_eq!(offsets.own(OtherClock::Wall, 6), NEVER);
        assert_eq!(offsets.own(OtherClock::Wall, 1_000), NEVER);
    }
}
