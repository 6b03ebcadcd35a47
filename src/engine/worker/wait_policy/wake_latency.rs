//! Wake-up latency compensation: how late the kernel ends a sleep.
//!
//! From the moment at which a sleep is to end to the worker's next instruction it takes the
//! kernel's timer, the exit from an idle state, and the scheduler: 5 µs on bare metal, 30 to 100 on
//! a virtual machine, and more after a long sleep than after a short one. Most of that comes each
//! time. So a worker asks for an end that is earlier by nearly the least latency it has seen, and
//! spins for the rest. KVM does so for the timers of its guests (`lapic_timer_advance_ns` in
//! `arch/x86/kvm/lapic.c`: by an eighth of the error at a time, and within bounds).
//!
//! The compensation is not the mean: half of the sleeps would end too early then, by as much as the
//! others are late, and the worker would spin for that time. It grows slowly, by a sixteenth of
//! the difference after a later wake-up. It shrinks fast, by a quarter of the difference after an
//! earlier one. Of many undisturbed sleeps one in four ends early, by a few µs.
//!
//! Sleeps are classed by their length, which decides how deep the idle state of the core is.

/// The number of classes. Each holds sleeps up to twice as long as the one before.
const CLASSES: usize = 12;
/// Sleeps of the first class are shorter than two to this power, in ns: 131 µs. Those of the last
/// class are longer than 134 ms.
const SHORTEST: u32 = 17;
/// How many sleeps of a class are recorded before it has a compensation.
const FIRST: u8 = 4;
/// The part of the error by which the estimate grows after a later sleep, as a divisor.
const UP: u64 = 16;
/// The part of the error by which the estimate shrinks after a less late sleep, as a divisor.
const DOWN: u64 = 4;
/// A latency counts up to twice the estimate plus this, in ns. So an estimate of zero can grow.
const LEAST: u64 = 2_000;

/// How late the kernel ends a worker's sleeps, by their length.
#[derive(Debug)]
pub(crate) struct WakeLatencies {
    /// The largest compensation, in ns. Zero turns it off.
    most: u64,
    classes: [WakeLatency; CLASSES],
}

/// A running estimate of the least latency of wake-ups.
#[derive(Clone, Copy, Debug, Default)]
struct WakeLatency {
    ns: u64,
    /// How many wake-ups were recorded, up to [`FIRST`].
    seen: u8,
}

fn class(length: u64) -> usize {
    // One class for each doubling of the length.
    let bits = u64::BITS - (length >> SHORTEST).leading_zeros();
    (bits as usize).min(CLASSES - 1)
}

impl WakeLatencies {
    /// Returns estimates that have learned nothing yet. No compensation exceeds `most`, in ns.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            classes: [WakeLatency::default(); CLASSES],
        }
    }

    /// Returns by how much earlier a sleep of `length` is to end, in ns.
    ///
    /// That is half of `length` at most: a shorter sleep is hardly worth its cost, and whether to
    /// sleep at all is decided [elsewhere](super::sleep_cost).
    #[inline]
    pub(crate) fn compensation(&self, length: u64) -> u64 {
        let class = &self.classes[class(length)];
        // So few samples may all have been disturbed.
        if class.seen < FIRST {
            return 0;
        }
        class.ns.min(length / 2)
    }

    /// Records that a sleep of `length` ended `late` after its timeout, both in ns.
    pub(crate) fn note(&mut self, length: u64, late: u64) {
        let class = &mut self.classes[class(length)];
        class.note(late);
        class.ns = class.ns.min(self.most);
    }
}

impl WakeLatency {
    /// Records a wake-up that was `late`, in ns.
    fn note(&mut self, late: u64) {
        let ns = self.ns;
        if self.seen < FIRST {
            // Take the least of the first ones: another thread may have had the core during one.
            self.ns = if self.seen == 0 { late } else { ns.min(late) };
            self.seen += 1;
        } else if late > ns {
            // Limit the error: in a very late sleep another thread had the core, which says nothing
            // about the next one.
            self.ns = ns + (late - ns).min(ns + LEAST) / UP;
        } else {
            self.ns = ns - (ns - late) / DOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MOST: u64 = 100_000;

    /// Records sleeps of a millisecond that end `late`, in ns.
    fn sleep(latencies: &mut WakeLatencies, late: impl IntoIterator<Item = u64>) {
        late.into_iter().for_each(|late| latencies.note(MS, late));
    }

    fn learned(late: impl IntoIterator<Item = u64>) -> WakeLatencies {
        let mut latencies = WakeLatencies::new(MOST);
        sleep(&mut latencies, late);
        latencies
    }

    #[test]
    fn the_first_few_give_no_compensation() {
        let mut latencies = learned([50_000; FIRST as usize - 1]);
        assert_eq!(latencies.compensation(MS), 0);
        sleep(&mut latencies, [60_000]);
        assert_eq!(latencies.compensation(MS), 50_000);
    }

    #[test]
    fn the_least_of_the_first_counts() {
        let latencies = learned([3_000_000, 41_000, 900_000, 70_000]);
        assert_eq!(latencies.compensation(MS), 41_000);
    }

    #[test]
    fn equal_latencies_give_an_equal_compensation() {
        assert_eq!(learned([50_000; 1_000]).compensation(MS), 50_000);
    }

    /// Returns latencies that are evenly spread, in mixed order.
    fn spread(from: u64, to: u64) -> impl Iterator<Item = u64> {
        let mut state = 20_261_122_u64;
        std::iter::repeat_with(move || {
            state = state * 48_271 % 0x7fff_ffff;
            from + state % (to - from)
        })
    }

    #[test]
    fn few_sleeps_end_early_and_only_by_little() {
        let mut latencies = learned(spread(40_000, 80_000).take(1_000));
        let (mut early, mut spun) = (0, 0);
        for late in spread(40_000, 80_000).skip(1_000).take(4_000) {
            let by = latencies.compensation(MS).saturating_sub(late);
            early += u32::from(by > 0);
            spun += by;
            sleep(&mut latencies, [late]);
        }
        assert!((400..2_000).contains(&early), "{early} of 4,000");
        assert!(spun < 4_000 * 4_000, "{} ns each", spun / 4_000);
    }

    #[test]
    fn one_very_late_sleep_counts_for_little() {
        let mut latencies = learned([50_000; 100]);
        sleep(&mut latencies, [u64::MAX / 2]);
        let early = latencies.compensation(MS);
        assert!(early < 54_000, "{early}");
    }

    #[test]
    fn the_estimate_grows_slowly_and_shrinks_fast() {
        let mut latencies = learned([80_000; 100]);
        let mut after = |late, times| {
            sleep(&mut latencies, std::iter::repeat_n(late, times));
            latencies.compensation(MS)
        };
        assert!(after(4_000, 1) <= 61_000, "the first lowers it at once");
        assert!(after(4_000, 12) < 7_000);
        assert!(after(80_000, 8) < 20_000);
        assert!(after(80_000, 80) > 70_000);
    }

    #[test]
    fn an_estimate_of_zero_can_grow() {
        let mut latencies = learned([0; 100]);
        assert_eq!(latencies.compensation(MS), 0);
        sleep(&mut latencies, [50_000; 100]);
        let early = latencies.compensation(MS);
        assert!(early > 40_000, "{early}");
    }

    #[test]
    fn the_compensation_keeps_its_limit() {
        let latencies = learned([u64::MAX / 2; 1_000]);
        assert_eq!(latencies.compensation(MS), MOST);
        let mut off = WakeLatencies::new(0);
        sleep(&mut off, [50_000; 100]);
        assert_eq!(off.compensation(MS), 0);
    }

    #[test]
    fn the_compensation_is_half_of_a_sleep_at_most() {
        let mut latencies = WakeLatencies::new(MOST);
        (0..100).for_each(|_| latencies.note(100_000, 90_000));
        assert_eq!(latencies.compensation(100_000), 50_000);
        assert_eq!(latencies.compensation(30), 15);
        assert_eq!(latencies.compensation(0), 0);
    }

    #[test]
    fn each_length_has_its_own_estimate() {
        let mut latencies = WakeLatencies::new(MOST);
        for (length, late) in [(60_000, 5_000), (3 * MS, 40_000), (900 * MS, 99_000)] {
            (0..FIRST).for_each(|_| latencies.note(length, late));
        }
        for (length, by) in [(100_000, 5_000), (2_500_000, 40_000), (u64::MAX, 99_000)] {
            assert_eq!(latencies.compensation(length), by);
        }
        assert_eq!(latencies.compensation(MS), 0, "no sleep was so long");
        assert_eq!(
            [0, 131_071, 131_072, 262_144, 134_217_727, 134_217_728].map(class),
            [0, 0, 1, 2, 10, 11]
        );
    }
}
