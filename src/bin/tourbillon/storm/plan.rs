//! What is going to happen to each timer: all of it follows from its index and the seed.
//!
//! Deadlines of the early timers are spread evenly over the window, with a jitter that makes some
//! coincide. The order in which they are armed, which is that of the indices, has nothing to do with
//! the order in which they are due, which is that of the *ranks*: rank = index × step mod n. The step
//! has an inverse, so that a meddler can find the timer that is due at this moment.

use std::ops::Range;

/// What is done to a timer, other than waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Nothing.
    None,
    /// It is cancelled.
    Cancel,
    /// It is refreshed.
    Refresh,
    /// It is reset, in one of several ways.
    Reset,
}

/// The plan. Times are in ns, on the ledger's clock.
#[derive(Debug)]
pub(super) struct Plan {
    timers: u32,
    /// Those with lower indices are armed before the window, the others in it.
    early: u32,
    /// When the window begins.
    base: u64,
    spread: u64,
    begun: u64,
    /// Cancelled, refreshed, reset: so many of 100.
    shares: [u32; 3],
    seed: u64,
    step: u64,
    inverse: u64,
}

/// One of so many timers is a late one.
const LATE: u32 = 16;

impl Plan {
    pub(super) fn new(timers: u32, spread: u64, shares: [u32; 3], seed: u64) -> Self {
        let early = timers - timers / LATE;
        let (step, inverse) = step(u64::from(early));
        Self {
            timers,
            early,
            base: 0,
            spread,
            begun: 0,
            shares,
            seed,
            step,
            inverse,
        }
    }

    /// Lets the window begin at `base`. Until then the plan has no times.
    pub(super) fn begin(&mut self, now: u64, base: u64) {
        self.begun = now;
        self.base = base;
    }

    /// How many timers are armed before the window.
    pub(super) fn early(&self) -> u32 {
        self.early
    }

    /// The indices of those that are armed in it.
    pub(super) fn late(&self) -> Range<u32> {
        self.early..self.timers
    }

    /// When the window begins.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// When the window ends. What is refreshed may be due later.
    pub(super) fn end(&self) -> u64 {
        self.base + self.spread
    }

    /// The latest deadline that any timer may come to have: refreshed at the end of the window, it
    /// waits once more for what it waited since the arming began.
    pub(super) fn latest(&self) -> u64 {
        self.end() + (self.end() - self.begun)
    }

    /// Bits that belong to a timer and a purpose.
    pub(super) fn bits(&self, index: u32, purpose: u32) -> u64 {
        mix(mix(self.seed ^ u64::from(index)) ^ u64::from(purpose))
    }

    /// The moment at which the early timer of this rank would be due without its jitter.
    pub(super) fn moment(&self, rank: u32) -> u64 {
        self.base + scale(rank, self.spread, self.early)
    }

    /// The deadline for which an early timer is armed.
    pub(super) fn deadline(&self, index: u32) -> u64 {
        let rank = u64::from(index) * self.step % u64::from(self.early);
        let jitter = self.spread / u64::from(self.early) * 8;
        self.moment(rank as u32) + self.bits(index, 0) % (jitter + 1)
    }

    /// The early timer of a rank.
    pub(super) fn at_rank(&self, rank: u32) -> u32 {
        (u64::from(rank) * self.inverse % u64::from(self.early)) as u32
    }

    /// When a late timer is armed.
    pub(super) fn late_arming(&self, index: u32) -> u64 {
        self.base + scale(index - self.early, self.spread, self.timers - self.early)
    }

    /// For when: at once, soon, or some time until the end of the window.
    pub(super) fn late_delay(&self, index: u32) -> u64 {
        let bits = self.bits(index, 1);
        let rest = self.end() - self.late_arming(index);
        match bits % 16 {
            0 => 0,
            1..=5 => (bits >> 8) % 200_000,
            _ => (bits >> 8) % (rest + 1),
        }
    }

    /// What is done to a timer.
    pub(super) fn deed(&self, index: u32) -> Deed {
        let percent = (self.bits(index, 2) % 100) as u32;
        let [cancel, refresh, reset] = self.shares;
        match percent {
            p if p < cancel => Deed::Cancel,
            p if p < cancel + refresh => Deed::Refresh,
            p if p < cancel + refresh + reset => Deed::Reset,
            _ => Deed::None,
        }
    }

    /// Whether an early timer is meddled with about when it is due, not at any moment.
    pub(super) fn is_met_when_due(&self, index: u32) -> bool {
        self.bits(index, 3) % 2 == 0
    }

    /// Whether a timer that is cancelled is reset by another meddler at about the same moment.
    pub(super) fn is_contested(&self, index: u32) -> bool {
        self.bits(index, 4) % 4 == 0
    }

    /// Whether a timer is armed by a delay, of which refreshing makes use, not for a moment.
    pub(super) fn is_armed_by_delay(&self, index: u32) -> bool {
        self.deed(index) == Deed::Refresh || self.bits(index, 5) % 2 == 0
    }
}

/// `part` of `of` parts of `whole`.
fn scale(part: u32, whole: u64, of: u32) -> u64 {
    (u128::from(part) * u128::from(whole) / u128::from(of.max(1))) as u64
}

/// A number by which multiplying shuffles 0..n, and its inverse.
fn step(n: u64) -> (u64, u64) {
    // Near the golden section of n, multiples are spread best.
    let golden = (n as f64 * 0.618_033_988_75) as u64;
    (golden.max(1)..)
        .find_map(|step| Some((step, inverse(step, n)?)))
        .expect("n + 1 has an inverse modulo n")
}

/// The inverse of `a` modulo `n`, if there is one, by Euclid's algorithm.
fn inverse(a: u64, n: u64) -> Option<u64> {
    let n = i128::from(n);
    let (mut r, mut next_r) = (n, i128::from(a) % n);
    let (mut t, mut next_t) = (0, 1);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (t, next_t) = (next_t, t - quotient * next_t);
    }
    (r == 1).then(|| t.rem_euclid(n) as u64)
}

/// A step of SplitMix64: bits that look random.
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(timers: u32) -> Plan {
        let mut plan = Plan::new(timers, 1_000_000_000, [10, 20, 30], 7);
        plan.begin(1_000, 5_000);
        plan
    }

    #[test]
    fn each_rank_is_one_timer() {
        for timers in [1, 2, 3, 15, 16, 17, 1_000, 9_973, 65_536] {
            let plan = plan(timers);
            let mut seen = vec![false; plan.early() as usize];
            for rank in 0..plan.early() {
                let index = plan.at_rank(rank);
                assert!(!std::mem::replace(&mut seen[index as usize], true));
                assert!(plan.deadline(index) >= plan.moment(rank), "{timers} {rank}");
            }
        }
    }

    #[test]
    fn deadlines_are_in_the_window_and_its_jitter() {
        let plan = plan(1_600);
        assert_eq!(plan.early(), 1_500);
        assert_eq!(plan.late(), 1_500..1_600);
        let jitter = 8 * (1_000_000_000 / 1_500);
        for index in 0..plan.early() {
            let deadline = plan.deadline(index);
            assert!((plan.base()..plan.end() + jitter).contains(&deadline));
        }
        for index in plan.late() {
            let arming = plan.late_arming(index);
            assert!((plan.base()..plan.end()).contains(&arming));
            assert!(arming + plan.late_delay(index) <= plan.end() + 200_000);
        }
    }

    #[test]
    fn shares_are_what_was_asked_for() {
        let plan = plan(100_000);
        let count = |deed| (0..100_000).filter(|&i| plan.deed(i) == deed).count();
        for (deed, percent) in [(Deed::Cancel, 10), (Deed::Refresh, 20), (Deed::Reset, 30)] {
            let share = count(deed);
            assert!(share.abs_diff(percent * 1_000) < 1_000, "{deed:?}: {share}");
        }
    }
}
