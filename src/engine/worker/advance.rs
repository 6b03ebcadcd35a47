//! How late the kernel wakes a worker, and by how much earlier it therefore has itself woken.
//!
//! From the moment at which a sleep is to end to the worker's next instruction it takes the kernel's timer, the way out
//! of an idle core, and the scheduler: 5 µs on bare metal, 30 to 100 on a virtual machine, and longer after a long sleep than
//! after a short one. Most of that comes each time. So a worker notes how late its sleeps end, and asks for an end that
//! is earlier by what they are late at the least, nearly; what is left until the deadline then, if anything, it
//! waits awake. It is what KVM does for the timers of its guests (`lapic_timer_advance_ns`, in
//! `arch/x86/kvm/lapic.c`: by an eighth of the error at a time, and within bounds).
//!
//! The advance is not to be the mean, or every other sleep would end too early by as much as the others are late, and
//! what is waited awake is processor time. It goes up slowly, by a sixteenth of what a sleep was later than it, and
//! down fast, by a quarter of what one was less late: of so many sleeps that nobody disturbs one in four is
//! early, by a few µs.
//!
//! By the length of the sleep, since that decides how deep the core's idle state is.

/// In which the lengths of sleeps are told apart, each up to twice the one before, from [`SHORTEST`] on.
const CLASSES: usize = 12;
/// The sleeps of the first class are shorter than this, as a power of two of ns: 131 µs. Those of the last are longer
/// than 134 ms.
const SHORTEST: u32 = 17;
/// So many sleeps of a class are looked at before anything is made of them.
const FIRST: u8 = 4;
/// By which part of the error the advance follows where a sleep was later than it,
const UP: u64 = 16;
/// and where one was less late.
const DOWN: u64 = 4;
/// An advance of zero grows, too: what a sleep is late counts up to twice the advance and this, in ns.
const LEAST: u64 = 2_000;

/// By how much earlier a worker has itself woken, by the length of its sleeps.
#[derive(Debug)]
pub(crate) struct Advance {
    /// In ns. Zero: nothing is learned.
    most: u64,
    classes: [Late; CLASSES],
}

/// How late the kernel is at the least, nearly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    ns: u64,
    /// How many sleeps were looked at, up to [`FIRST`].
    seen: u8,
}

/// A sleep to be noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    class: usize,
    /// When it is to end, in ns of the clock that [`Advance::woken`] is given.
    end: u64,
}

impl Timed {
    /// A sleep at `now` for a deadline, which is to end `early` before that. It counts among those that are as long as
    /// it would be without: so what is learned is learned of those that it is for.
    pub(crate) fn new(now: u64, deadline: u64, early: u64) -> Self {
        Self {
            class: class(deadline.saturating_sub(now)),
            end: deadline.saturating_sub(early),
        }
    }

    /// Whether it was over at `now`.
    pub(crate) fn is_over(self, now: u64) -> bool {
        self.end <= now
    }
}

fn class(length: u64) -> usize {
    let bits = u64::BITS - (length >> SHORTEST).leading_zeros();
    (bits as usize).min(CLASSES - 1)
}

impl Advance {
    /// None yet, and never more than `most`, in ns.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            classes: [Late::default(); CLASSES],
        }
    }

    /// By how much earlier a sleep of `length` is to end, in ns. At most by half of that: of what is so near little
    /// would be left to sleep, and whether to sleep at all is for [others](crate::engine::worker::near) to say.
    #[inline]
    pub(crate) fn of(&self, length: u64) -> u64 {
        let class = &self.classes[class(length)];
        if class.seen < FIRST {
            return 0;
        }
        class.ns.min(length / 2)
    }

    /// A sleep has ended by itself, at `now`.
    pub(crate) fn woken(&mut self, sleep: Timed, now: u64) {
        let most = self.most;
        let class = &mut self.classes[sleep.class];
        class.note(now.saturating_sub(sleep.end));
        class.ns = class.ns.min(most);
    }
}

impl Late {
    /// In ns; zero until something was noted.
    pub(crate) fn ns(self) -> u64 {
        self.ns
    }

    /// It was so late, in ns.
    pub(crate) fn note(&mut self, late: u64) {
        let ns = self.ns;
        if self.seen < FIRST {
            // The least of the first: what one of them is late may be the time that another thread had the core.
            self.ns = if self.seen == 0 { late } else { ns.min(late) };
            self.seen += 1;
        } else if late > ns {
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

    /// Sleeps of a millisecond that are so late, one after another.
    fn sleep(advance: &mut Advance, late: impl IntoIterator<Item = u64>) {
        for late in late {
            advance.woken(Timed::new(7, 7 + MS, 0), 7 + MS + late);
        }
    }

    fn learned(late: impl IntoIterator<Item = u64>) -> Advance {
        let mut advance = Advance::new(MOST);
        sleep(&mut advance, late);
        advance
    }

    #[test]
    fn nothing_is_made_of_the_first_few() {
        let mut advance = learned([50_000; FIRST as usize - 1]);
        assert_eq!(advance.of(MS), 0);
        sleep(&mut advance, [60_000]);
        assert_eq!(advance.of(MS), 50_000);
    }

    #[test]
    fn the_least_of_the_first_counts() {
        let advance = learned([3_000_000, 41_000, 900_000, 70_000]);
        assert_eq!(advance.of(MS), 41_000);
    }

    #[test]
    fn it_stays_where_all_are_equally_late() {
        assert_eq!(learned([50_000; 1_000]).of(MS), 50_000);
    }

    /// Evenly spread, and in no order.
    fn spread(from: u64, to: u64) -> impl Iterator<Item = u64> {
        let mut state = 20_261_122_u64;
        std::iter::repeat_with(move || {
            state = state * 48_271 % 0x7fff_ffff;
            from + state % (to - from)
        })
    }

    #[test]
    fn few_sleeps_are_early_and_those_by_little() {
        let mut advance = learned(spread(40_000, 80_000).take(1_000));
        let (mut early, mut awake) = (0, 0);
        for late in spread(40_000, 80_000).skip(1_000).take(4_000) {
            let by = advance.of(MS).saturating_sub(late);
            early += u32::from(by > 0);
            awake += by;
            sleep(&mut advance, [late]);
        }
        assert!((400..2_000).contains(&early), "{early} of 4,000");
        assert!(awake < 4_000 * 4_000, "{} ns each", awake / 4_000);
    }

    #[test]
    fn one_that_is_very_late_counts_for_little() {
        let mut advance = learned([50_000; 100]);
        sleep(&mut advance, [u64::MAX / 2]);
        assert!(advance.of(MS) < 54_000, "{}", advance.of(MS));
    }

    #[test]
    fn it_is_unlearned_fast_and_learned_slowly() {
        let mut advance = learned([80_000; 100]);
        sleep(&mut advance, [4_000]);
        assert!(advance.of(MS) <= 61_000, "the first lowers it at once");
        sleep(&mut advance, [4_000; 12]);
        assert!(advance.of(MS) < 7_000, "{}", advance.of(MS));
        sleep(&mut advance, [80_000; 8]);
        assert!(advance.of(MS) < 20_000, "{}", advance.of(MS));
        sleep(&mut advance, [80_000; 80]);
        assert!(advance.of(MS) > 70_000, "{}", advance.of(MS));
    }

    #[test]
    fn it_comes_back_from_zero() {
        let mut advance = learned([0; 100]);
        assert_eq!(advance.of(MS), 0);
        sleep(&mut advance, [50_000; 100]);
        assert!(advance.of(MS) > 40_000, "{}", advance.of(MS));
    }

    #[test]
    fn it_keeps_within_its_bound() {
        assert_eq!(learned([u64::MAX / 2; 1_000]).of(MS), MOST);
        let mut off = Advance::new(0);
        sleep(&mut off, [50_000; 100]);
        assert_eq!(off.of(MS), 0);
    }

    /// A sleep that ends earlier is not taken for a shorter one.
    #[test]
    fn what_is_used_is_what_follows() {
        let (mut advance, length) = (Advance::new(MOST), 140_000);
        for late in [50_000; 10].into_iter().chain([3_000; 30]) {
            let early = advance.of(length);
            let sleep = Timed::new(0, length, early);
            assert!(!sleep.is_over(length - early - 1) && sleep.is_over(length - early));
            advance.woken(sleep, length - early + late);
        }
        assert!(advance.of(length) < 4_000, "{}", advance.of(length));
    }

    #[test]
    fn no_more_than_half_of_a_sleep_is_waited_awake() {
        let mut advance = Advance::new(MOST);
        for _ in 0..100 {
            advance.woken(Timed::new(0, 100_000, 0), 190_000);
        }
        assert_eq!(advance.of(100_000), 50_000);
        assert_eq!(advance.of(30), 15);
        assert_eq!(advance.of(0), 0);
    }

    #[test]
    fn each_length_has_its_own() {
        let mut advance = Advance::new(MOST);
        for (length, late) in [(60_000, 5_000), (3 * MS, 40_000), (900 * MS, 99_000)] {
            for _ in 0..FIRST {
                advance.woken(Timed::new(0, length, 0), length + late);
            }
        }
        for (length, by) in [(100_000, 5_000), (2_500_000, 40_000), (u64::MAX, 99_000)] {
            assert_eq!(advance.of(length), by);
        }
        assert_eq!(advance.of(MS), 0, "nobody has slept for so long");
        assert_eq!(
            [0, 131_071, 131_072, 262_144, 134_217_727, 134_217_728].map(class),
            [0, 0, 1, 2, 10, 11]
        );
    }
}
