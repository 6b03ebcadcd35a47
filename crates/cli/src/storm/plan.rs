//! The plan: what happens to each timer, computed from its index and the seed.
//!
//! The deadlines of the early timers are spread evenly over the window, with a jitter that makes
//! some coincide. Timers are armed in the order of their indices, and due in the order of their
//! *ranks*: rank = index × step mod n. So the two orders are unrelated. The step has an inverse, so
//! a meddler can find the timer that is due next.

use std::ops::Range;

/// The action on a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// None: it only waits.
    None,
    /// Cancel it.
    Cancel,
    /// Refresh it.
    Refresh,
    /// Reset it, in one of several ways.
    Reset,
}

/// The plan. Times are in ns on the ledger's clock.
#[derive(Debug)]
pub(super) struct Plan {
    timers: u32,
    /// Lower indices are armed before the window, the others in it.
    early: u32,
    /// Start of the window.
    base: u64,
    spread: u64,
    begun: u64,
    /// Percentages of timers to cancel, refresh and reset.
    shares: [u32; 3],
    /// Percentage of the early timers that are tasks.
    tasks: u32,
    seed: u64,
    step: u64,
    inverse: u64,
}

/// One timer in this many is late.
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
            tasks: 0,
            seed,
            step,
            inverse,
        }
    }

    /// Makes this percentage of the early timers tasks that sleep.
    pub(super) fn with_tasks(self, percent: u32) -> Self {
        Self {
            tasks: percent,
            ..self
        }
    }

    /// Returns whether a timer is a task that sleeps. No meddler acts on it.
    pub(super) fn is_task(&self, index: u32) -> bool {
        index < self.early && self.bits(index, 6) % 100 < u64::from(self.tasks)
    }

    /// Sets the start of the window to `base`. Call it before asking for times.
    pub(super) fn begin(&mut self, now: u64, base: u64) {
        self.begun = now;
        self.base = base;
    }

    /// Returns the number of timers that are armed before the window.
    pub(super) fn early(&self) -> u32 {
        self.early
    }

    /// Returns the indices of the timers that are armed in the window.
    pub(super) fn late(&self) -> Range<u32> {
        self.early..self.timers
    }

    /// Returns the start of the window.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the end of the window. A refreshed timer can be due later.
    pub(super) fn end(&self) -> u64 {
        self.base + self.spread
    }

    /// Returns the latest possible deadline. A timer that is refreshed at the end of the window
    /// waits once more for as long as it did since arming began.
    pub(super) fn latest(&self) -> u64 {
        self.end() + (self.end() - self.begun)
    }

    /// Returns random bits for a timer and a purpose.
    pub(super) fn bits(&self, index: u32, purpose: u32) -> u64 {
        mix(mix(self.seed ^ u64::from(index)) ^ u64::from(purpose))
    }

    /// Returns the deadline of the early timer with this rank, without jitter.
    pub(super) fn moment(&self, rank: u32) -> u64 {
        self.base + scale(rank, self.spread, self.early)
    }

    /// Returns the first deadline of an early timer.
    pub(super) fn deadline(&self, index: u32) -> u64 {
        let rank = u64::from(index) * self.step % u64::from(self.early);
        let jitter = self.spread / u64::from(self.early) * 8;
        self.moment(rank as u32) + self.bits(index, 0) % (jitter + 1)
    }

    /// Returns the early timer with this rank.
    pub(super) fn at_rank(&self, rank: u32) -> u32 {
        (u64::from(rank) * self.inverse % u64::from(self.early)) as u32
    }

    /// Returns when to arm a late timer.
    pub(super) fn late_arming(&self, index: u32) -> u64 {
        self.base + scale(index - self.early, self.spread, self.timers - self.early)
    }

    /// Returns the delay of a late timer: zero, short, or up to the end of the window.
    pub(super) fn late_delay(&self, index: u32) -> u64 {
        let bits = self.bits(index, 1);
        let rest = self.end() - self.late_arming(index);
        match bits % 16 {
            0 => 0,
            1..=5 => (bits >> 8) % 200_000,
            _ => (bits >> 8) % (rest + 1),
        }
    }

    /// Returns the action on a timer.
    pub(super) fn action(&self, index: u32) -> Action {
        if self.is_task(index) {
            return Action::None;
        }
        let percent = (self.bits(index, 2) % 100) as u32;
        let [cancel, refresh, reset] = self.shares;
        match percent {
            p if p < cancel => Action::Cancel,
            p if p < cancel + refresh => Action::Refresh,
            p if p < cancel + refresh + reset => Action::Reset,
            _ => Action::None,
        }
    }

    /// Returns whether a meddler acts on an early timer close to its deadline, not at any time.
    pub(super) fn acts_when_due(&self, index: u32) -> bool {
        self.bits(index, 3).is_multiple_of(2)
    }

    /// Returns whether a second meddler resets a timer at about the moment when the first cancels
    /// it.
    pub(super) fn is_contested(&self, index: u32) -> bool {
        self.bits(index, 4).is_multiple_of(4)
    }

    /// Returns whether to arm a timer by a delay, not for an instant. Refreshing needs a delay.
    pub(super) fn is_armed_by_delay(&self, index: u32) -> bool {
        self.action(index) == Action::Refresh || self.bits(index, 5).is_multiple_of(2)
    }
}

/// Returns `whole * part / of` without overflow.
fn scale(part: u32, whole: u64, of: u32) -> u64 {
    (u128::from(part) * u128::from(whole) / u128::from(of.max(1))) as u64
}

/// Returns a factor whose multiples permute 0..n, and its inverse modulo n.
fn step(n: u64) -> (u64, u64) {
    // Near n divided by the golden ratio, multiples are spread most evenly.
    let golden = (n as f64 * 0.618_033_988_75) as u64;
    (golden.max(1)..)
        .find_map(|step| Some((step, inverse(step, n)?)))
        .expect("n + 1 has an inverse modulo n")
}

/// Returns the inverse of `a` modulo `n`, if it exists, by Euclid's algorithm.
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

/// One step of SplitMix64, a mixing function.
pub(super) fn mix(number: u64) -> u64 {
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
        let count = |action| (0..100_000).filter(|&i| plan.action(i) == action).count();
        for (action, percent) in [
            (Action::Cancel, 10),
            (Action::Refresh, 20),
            (Action::Reset, 30),
        ] {
            let share = count(action);
            assert!(
                share.abs_diff(percent * 1_000) < 1_000,
                "{action:?}: {share}"
            );
        }
    }
}
