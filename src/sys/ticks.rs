//! A cheap clock for threads that compute many deadlines in a row. It reads the processor's
//! time-stamp counter for a short time after each reading of the kernel's clock.
//!
//! The kernel's clock takes 25 ns. Its fence (`lfence`) also waits for all loads under way. A
//! thread that arms or moves many timers would wait for the cache misses of each one, which
//! otherwise overlap. So a thread that has read the kernel's clock within [`SPAN`] reads only the
//! counter (`rdtsc`), without a fence.
//!
//! The result is not the present time, but a moment that has not passed. It is good for a deadline:
//! the deadline may be late by [`AHEAD`] and a little more, and is never early. A thread that asks
//! once in a while gets the kernel's time.
//!
//! Such a moment also shows that a deadline has not passed, if the deadline is later still: see
//! [`has_passed`]. Most deadlines are far ahead, so the moment need not be near the present, and
//! the counter is used for longer than [`SPAN`].
//!
//! Why the result has not passed:
//!
//! - The counter is used only if the kernel's own clock source is `tsc`. Then the counter has one
//!   rate, and shows the same value on all cores. The kernel's watchdog may find later that this is
//!   not so. So once a second one thread checks the clock source, when it reads the kernel's clock
//!   anyway. If the source has changed, all threads use only the kernel's clock from then on.
//! - The kernel varies the rate of its clock to follow the time of day, by 11 in 100 at most
//!   (`maxadj` of its clock sources). The length of a tick is measured as an upper bound, and a
//!   quarter is added. That is enough, because the fastest rate is to the slowest as 1.11 is to
//!   0.89.
//! - Without a fence, the processor may read the counter before earlier instructions have
//!   completed. One of these may receive a message of another thread that has read its clock
//!   meanwhile. That concerns some hundred instructions that wait for memory, usually for a few
//!   hundred ns each, and these waits overlap. [`AHEAD`] is more. A load that misses all caches,
//!   even for its page tables, can wait longer on a loaded virtual machine. In some hundred
//!   million results one was 2 µs before the time in a message that had just arrived. While four
//!   builds and tests ran on two cores, 65 of four million were, by 15 µs at most.
//! - The order at the start of a span is safe: the counter is read before the kernel's clock, and
//!   the kernel's fence waits for the counter.
//!
//! The results of a thread never decrease. On other processors than x86-64, on a simulated clock,
//! and in the first millisecond, before the rate is known, each result is the kernel's time.

use std::{
    cell::Cell,
    fs, io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::clock::monotonic;

/// How long the counter is used after a reading of the kernel's clock, in ns, by the upper bound of
/// its rate.
const SPAN: u64 = 2_000;

/// Added to each result of the counter, in ns, because the processor may read the counter too
/// early.
const AHEAD: u64 = 1_000;

/// The most by which a result is ahead of the present, in ns.
pub(crate) const AT_MOST_AHEAD: u64 = AHEAD + SPAN;

/// For how many spans after a reading of the kernel's clock [`has_passed`] uses the counter: for a
/// millisecond in all.
const SPANS: u64 = 500;

/// The shortest time over which the rate is measured, in ns.
const BASELINE: u64 = 1_000_000;

/// How often a thread checks whether the kernel still uses the counter, in ns.
const LOOK: u64 = 1_000_000_000;

/// The rate of a counter that is not used any more: it became slower, or the kernel has given it
/// up.
const USELESS: u64 = u64::MAX;

/// What is known about the processor's counter.
struct Counter {
    /// An upper bound of the length of a tick, in units of 2⁻³² ns. Zero if it is not known yet,
    /// and [`USELESS`] if the counter is not used any more.
    rate: AtomicU64,
    /// When to check the kernel's clock source next, in ns by the kernel's clock.
    look_at: AtomicU64,
    /// Reads the name of the kernel's clock source.
    source: fn() -> io::Result<String>,
}

static COUNTER: Counter = Counter {
    rate: AtomicU64::new(0),
    look_at: AtomicU64::new(0),
    source: kernels_source,
};

impl Counter {
    /// Returns whether the counter may still be used at `nanos`, a fresh reading of the kernel's
    /// clock.
    #[inline]
    fn is_of_use(&self, nanos: u64) -> bool {
        if nanos >= self.look_at.load(Ordering::Relaxed) {
            self.look(nanos);
        }
        self.rate.load(Ordering::Relaxed) != USELESS
    }

    /// Checks whether the kernel still uses the counter, unless another thread is checking right
    /// now.
    #[cold]
    fn look(&self, nanos: u64) {
        let at = self.look_at.load(Ordering::Relaxed);
        let taken = nanos >= at
            && (self.look_at)
                .compare_exchange(at, nanos + LOOK, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        // An error, for example for want of a file descriptor, proves nothing. The next check is a
        // second later.
        if taken && (self.source)().is_ok_and(|source| !is_counter(&source)) {
            self.rate.store(USELESS, Ordering::Relaxed);
        }
    }

    /// Returns the [rate](Counter::rate), or zero if it is not known or the counter is not used any
    /// more.
    fn known_rate(&self) -> u64 {
        match self.rate.load(Ordering::Relaxed) {
            0 => self.measured().unwrap_or(0),
            USELESS => 0,
            known => known,
        }
    }

    /// Returns the rate if enough time has passed since the [beginning](begin) of the measurement.
    fn measured(&self) -> Option<u64> {
        let (first, began) = begin()?;
        // Both readings of the counter are inside of the two readings of the kernel's clock. So the
        // tick comes out too long if the thread is suspended in between, and never too short. A
        // tick that is too long only makes the use of the counter shorter than `SPAN`.
        let ticks = counter().checked_sub(first)?;
        let nanos = monotonic() - began;
        if nanos < BASELINE {
            return None;
        }
        let rate = (u128::from(nanos) << 32).checked_div(u128::from(ticks))?;
        let rate = u64::try_from(rate + rate / 4)
            .ok()
            .filter(|&rate| rate != 0 && rate < USELESS)?;
        // Keep `USELESS` if another thread has stored it meanwhile.
        let found = self
            .rate
            .compare_exchange(0, rate, Ordering::Relaxed, Ordering::Relaxed);
        (found != Err(USELESS)).then_some(rate)
    }
}

/// A thread's last reading of the kernel's clock, and its results since then.
struct Last {
    /// The counter just before that reading.
    ticks: Cell<u64>,
    /// The kernel's time, in ns.
    nanos: Cell<u64>,
    /// For how many ticks the counter is used. Zero while it is not used.
    span: Cell<u64>,
    /// See [`Counter::rate`].
    rate: Cell<u64>,
    /// The last result that was ahead of the kernel's time.
    given: Cell<u64>,
}

thread_local! {
    static LAST: Last = const {
        Last {
            ticks: Cell::new(0),
            nanos: Cell::new(0),
            span: Cell::new(0),
            rate: Cell::new(0),
            given: Cell::new(0),
        }
    };
}

impl Last {
    /// Returns the counter, and the ticks since the kernel's clock was read if these are less than
    /// `spans` spans.
    #[inline]
    fn ticks(&self, spans: u64) -> (u64, Option<u64>) {
        let counter = counter();
        // If the counter was set back, as after a suspension of the machine, the difference wraps
        // and is too large. While the counter is not used, any difference is.
        let ticks = counter.wrapping_sub(self.ticks.get());
        (counter, (ticks < self.span.get() * spans).then_some(ticks))
    }

    /// Returns `moment`, or a later one: later than all results of this thread that were ahead.
    #[inline]
    fn give(&self, moment: u64) -> u64 {
        let given = moment.max(self.given.get() + 1);
        self.given.set(given);
        given
    }

    /// Returns a moment that has not passed `ticks` after the kernel's clock was read.
    #[inline]
    fn at_most(&self, ticks: u64) -> u64 {
        self.nanos.get() + AHEAD + ((ticks * self.rate.get()) >> 32)
    }

    /// Reads the kernel's clock and returns the result.
    #[inline]
    fn asked(&self, ticks: u64) -> u64 {
        let nanos = self.ask(ticks, &COUNTER);
        // An earlier result of the counter may be ahead of the kernel's time.
        if nanos > self.given.get() {
            nanos
        } else {
            self.give(nanos)
        }
    }

    /// Reads the kernel's clock, and decides whether the counter can be used until the next
    /// reading. The caller has just read the counter, which was at `ticks`.
    #[cold]
    #[inline(never)]
    fn ask(&self, ticks: u64, known: &Counter) -> u64 {
        // The counter came first: the kernel's fence waits for it, so it is never too late.
        let nanos = monotonic();
        // 1. The counter is not in use on this thread. Begin if its rate is known.
        if self.span.get() == 0 {
            let rate = known.known_rate();
            if rate == 0 {
                return nanos;
            }
            self.rate.set(rate);
            self.span.set((SPAN << 32) / rate);
        // 2. Stop if the kernel has given the counter up.
        } else if !known.is_of_use(nanos) {
            self.span.set(0);
            return nanos;
        // 3. Stop if the counter has become slower than its rate says. The second reading excludes
        //    a thread that was suspended between its first reading and the kernel's.
        } else if self.is_slow(ticks, nanos) && self.is_slow(counter(), nanos) {
            known.rate.store(USELESS, Ordering::Relaxed);
            self.span.set(0);
            return nanos;
        }
        self.ticks.set(ticks);
        self.nanos.set(nanos);
        nanos
    }

    /// Returns whether the counter shows less time since the last reading than the kernel's clock
    /// does.
    fn is_slow(&self, ticks: u64, nanos: u64) -> bool {
        let ticks = ticks.wrapping_sub(self.ticks.get());
        let most = (u128::from(ticks) * u128::from(self.rate.get())) >> 32;
        u128::from(nanos - self.nanos.get()) > most + u128::from(AHEAD)
    }
}

/// Returns the time to compute a deadline from, in ns of the kernel's monotonic clock.
///
/// The result is a moment that has not passed, and is ahead by [`AT_MOST_AHEAD`] at most. While the
/// counter is used, each result is later than the thread's last one. All deadlines of the kind "so
/// long from now" are computed from this, except short ones.
#[inline]
pub(crate) fn now_for_deadline() -> u64 {
    LAST.with(|last| match last.ticks(1) {
        (_, Some(ticks)) => last.give(last.at_most(ticks)),
        (counter, None) => last.asked(counter),
    })
}

/// Returns whether `moment`, in ns of the kernel's monotonic clock, has passed.
///
/// For a moment that is far enough ahead, the counter is enough. For any other, the answer comes
/// from the kernel's clock.
#[inline]
pub(crate) fn has_passed(moment: i64) -> bool {
    LAST.with(|last| match last.ticks(SPANS) {
        (_, Some(ticks)) if moment > last.at_most(ticks) as i64 => false,
        (counter, _) => moment <= last.ask(counter, &COUNTER) as i64,
    })
}

/// Returns a moment of the kernel's monotonic clock, in ns, that is not in the future. It is no
/// further back than [`SPAN`].
#[inline]
pub(crate) fn not_after_now() -> u64 {
    LAST.with(|last| match last.ticks(1) {
        (_, Some(_)) => last.nanos.get(),
        (counter, None) => last.ask(counter, &COUNTER),
    })
}

/// Begins to measure the rate, if the counter can be used.
pub(crate) fn prepare() {
    begin();
}

/// Returns the beginning of the measurement: the counter, and the kernel's time just before it.
/// `None` if the counter cannot be used.
fn begin() -> Option<(u64, u64)> {
    static BEGIN: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    *BEGIN.get_or_init(|| {
        is_the_kernels().then(|| {
            let nanos = monotonic();
            (counter(), nanos)
        })
    })
}

/// Reads the processor's counter.
#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. If the process has forbidden it to
    // itself, it cannot read the kernel's clock either, because the kernel's clock uses the counter
    // here.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Other processors have no counter that is known to be the kernel's clock source.
#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Returns whether the kernel's clock uses [`counter`]. It does so only if the counter is reliable.
fn is_the_kernels() -> bool {
    cfg!(all(target_arch = "x86_64", not(tourbillon_sim)))
        && kernels_source().is_ok_and(|source| is_counter(&source))
}

/// Reads the name of the kernel's clock source.
fn kernels_source() -> io::Result<String> {
    fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Returns whether this clock source is [`counter`].
fn is_counter(source: &str) -> bool {
    source.trim() == "tsc"
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread, time::Duration};

    use super::*;

    /// Waits until the rate can be measured.
    fn prepared() {
        prepare();
        thread::sleep(Duration::from_nanos(2 * BASELINE));
    }

    #[test]
    fn a_result_has_not_passed_and_is_not_far_ahead() {
        prepared();
        let mut last = 0;
        for _ in 0..1_000_000 {
            let before = monotonic();
            let moment = now_for_deadline();
            assert!(moment >= before, "{moment} has passed at {before}");
            let after = monotonic();
            assert!(
                moment <= after + AT_MOST_AHEAD,
                "{moment} is far ahead of {after}"
            );
            assert!(
                moment > last || moment == before,
                "{moment} comes after {last}"
            );
            last = moment;
        }
    }

    #[test]
    fn results_of_a_burst_increase_and_come_from_the_counter() {
        prepared();
        let (mut last, mut of_the_counter) = (0, 0);
        for _ in 0..1_000_000 {
            let moment = now_for_deadline();
            assert!(moment > last);
            of_the_counter += u64::from(LAST.with(|last| last.given.get()) == moment);
            last = moment;
        }
        // Even a thread that is suspended all the time asks twice between two suspensions.
        assert_eq!(of_the_counter > 0, is_the_kernels());
        assert!(monotonic() + AT_MOST_AHEAD >= last);
    }

    #[test]
    fn a_result_is_not_before_a_message_that_was_received() {
        prepared();
        let (sent, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
        // Ends the other thread also if an assertion fails.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    sent.store(monotonic(), Ordering::Release);
                }
            });
            let _over = Over(over);
            // So many that the share of those that have passed says something, also on a loaded
            // machine, where a thread makes few in a second.
            const READINGS: u64 = 4_000_000;
            let (mut passed, mut worst) = (0, 0);
            for _ in 0..READINGS {
                let message = sent.load(Ordering::Acquire);
                let moment = now_for_deadline();
                if moment < message {
                    passed += 1;
                    worst = worst.max(message - moment);
                }
            }
            // The kernel's own readings on two cores can differ by some ns in the wrong order, and
            // a load can wait for longer than `AHEAD`. Both are rare. How long a load waits has no
            // bound on a loaded virtual machine, where its page may have to be mapped first. If
            // `AHEAD` were zero, one result in a thousand would have passed.
            assert!(
                passed <= READINGS / 10_000,
                "{passed} of {READINGS} had passed, by {worst} ns at most"
            );
        });
    }

    #[test]
    fn a_moment_has_passed_exactly_when_the_kernels_clock_says_so() {
        prepared();
        for round in 0..1_000_000_i64 {
            let before = monotonic() as i64;
            // Moments of up to 50 µs in the past and in the future, and some far ahead.
            let moment = before + round * 7_919 % 100_000 - 50_000 + round % 50 / 49 * (1 << 50);
            let answer = has_passed(moment);
            let after = monotonic() as i64;
            match answer {
                true => assert!(moment <= after, "{moment} has not passed at {after}"),
                false => assert!(moment > before, "{moment} had passed at {before}"),
            }
        }
    }

    #[test]
    fn a_moment_not_after_now_is_recent() {
        prepared();
        for _ in 0..100_000 {
            let (before, moment) = (monotonic(), not_after_now());
            assert!(moment <= monotonic());
            // The span uses an upper bound of the rate, so it is shorter in real time. But the
            // thread may be suspended between its reading of the counter and its use of the
            // kernel's time.
            assert!(
                moment + 2 * SPAN >= before,
                "{moment} is long before {before}"
            );
        }
    }

    #[test]
    fn a_counter_that_becomes_slow_is_detected() {
        let last = Last {
            ticks: Cell::new(1_000),
            nanos: Cell::new(1_000),
            span: Cell::new(1),
            // A tick is one ns long.
            rate: Cell::new(1 << 32),
            given: Cell::new(0),
        };
        assert!(!last.is_slow(2_000, 2_000));
        assert!(!last.is_slow(2_000, 2_000 + AHEAD));
        assert!(last.is_slow(2_000, 2_001 + AHEAD));
        assert!(
            !last.is_slow(0, u64::MAX / 2),
            "it was set back: `ticks` rejects it, so it is not called slow"
        );
    }

    /// The kernel's watchdog does this with a counter that it finds unstable.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_counter_that_the_kernel_gives_up_is_no_longer_used() {
        thread_local! {
            static SAYS: Cell<Option<&'static str>> = const { Cell::new(Some("tsc\n")) };
            static LOOKS: Cell<u32> = const { Cell::new(0) };
        }
        fn source() -> io::Result<String> {
            LOOKS.set(LOOKS.get() + 1);
            let says = SAYS.get().map(str::to_owned);
            says.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
        }
        // A tick counts as one µs, so that the counter is never found to be slow.
        let known = Counter {
            rate: AtomicU64::new(1_000 << 32),
            look_at: AtomicU64::new(0),
            source,
        };
        let fresh = || Last {
            ticks: Cell::new(0),
            nanos: Cell::new(0),
            span: Cell::new(0),
            rate: Cell::new(0),
            given: Cell::new(0),
        };
        let (one, other) = (fresh(), fresh());
        let uses = |last: &Last| {
            last.ask(counter(), &known);
            last.span.get() > 0
        };
        let a_second_passes = || known.look_at.store(0, Ordering::Relaxed);
        assert!(uses(&one) && uses(&other), "both begin to use it");
        assert!(uses(&one) && uses(&other));
        assert_eq!(LOOKS.get(), 1, "one thread checks for all");
        a_second_passes();
        SAYS.set(None);
        assert!(uses(&one), "an error proves nothing");
        SAYS.set(Some("hpet\n"));
        assert!(uses(&one), "the source is checked once a second");
        assert_eq!(LOOKS.get(), 2);
        a_second_passes();
        assert!(!uses(&one));
        assert!(
            !uses(&other),
            "another thread stops when it reads the kernel's clock"
        );
        assert_eq!(LOOKS.get(), 3);
        // Even if the source is `tsc` again, the counter stays unused: the kernel may give it up
        // again.
        SAYS.set(Some("tsc\n"));
        a_second_passes();
        assert!(!uses(&one) && !uses(&other) && !uses(&fresh()));
    }
}
