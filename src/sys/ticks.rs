//! What time it is, for who asks many times in a row: by the processor's counter, for a moment after the
//! kernel has said it.
//!
//! The kernel's clock takes 25 ns, and its fence (`lfence`) waits for all that is being read: of who arms or
//! moves many timers each would wait for its own cold lines, which otherwise come together. So a thread that
//! has asked the kernel within [`SPAN`] reads the counter (`rdtsc`) alone, without a fence, and answers not what
//! time it is but a moment that has not passed. From that a deadline is calculated: it may be later, by
//! [`AHEAD`] and some, and is never early. Who asks once in a while has the kernel's answer.
//!
//!   Why what is answered has not passed:
//!
//! - The counter is used only where the kernel goes by it itself (its clock source is `tsc`): then it runs at
//!   one rate, and shows the same on all cores. The kernel's watchdog may find later that it does
//!   not. So one thread   looks again each second, when it asks the kernel anyway, and from then on
//!   all ask the kernel alone.
//! - The kernel bends its clock against that rate to follow the time of day, by 11 in 100 at most (`maxadj` of its
//!   clock sources). How many ns a tick has is measured, as a bound from above, and a quarter is added: from
//!   slowest to fastest it is 1.11 ÷ 0.89.
//! - Without a fence the counter may be read before what stands before it in the program, as long as that has not
//!   been completed: a message from another thread, which has read its clock meanwhile. That is some hundred
//!   instructions that wait for memory, a few times a hundred ns each. [`AHEAD`] is more.
//! - The other end is safe: the counter is read before the kernel is asked, and that waits for it.
//!
//! A thread's answers grow. Elsewhere than on x86-64, on a simulated clock, and before a millisecond has shown
//! the rate, each answer is the kernel's.

use std::{
    cell::Cell,
    fs, io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::clock::monotonic;

/// For how long, in ns, the counter does after the kernel was asked; by the upper bound of its rate.
const SPAN: u64 = 2_000;

/// What is added for instructions that are done before their turn, in ns.
const AHEAD: u64 = 1_000;

/// No answer is further ahead of the present than this, in ns.
pub(crate) const AT_MOST_AHEAD: u64 = AHEAD + SPAN;

/// The rate is measured over no less than this, in ns.
const BASELINE: u64 = 1_000_000;

/// How often it is looked whether the kernel still goes by the counter, in ns.
const LOOK: u64 = 1_000_000_000;

/// The rate of a counter that was found to be slower than it was, or that the kernel does not go by
/// any more.
const USELESS: u64 = u64::MAX;

/// What is known of the processor's counter.
struct Counter {
    /// An upper bound of the ns of a tick, in units of 2⁻³² ns. Zero: not known; [`USELESS`]: not
    /// to be known.
    rate: AtomicU64,
    /// When it is to be looked again whether the kernel goes by the counter, by the kernel's clock.
    look_at: AtomicU64,
    /// By what the kernel says that it tells the time.
    source: fn() -> io::Result<String>,
}

static COUNTER: Counter = Counter {
    rate: AtomicU64::new(0),
    look_at: AtomicU64::new(0),
    source: kernels_source,
};

impl Counter {
    /// Whether the counter may still be used at `nanos`, which the kernel has just said.
    #[inline]
    fn is_of_use(&self, nanos: u64) -> bool {
        if nanos >= self.look_at.load(Ordering::Relaxed) {
            self.look(nanos);
        }
        self.rate.load(Ordering::Relaxed) != USELESS
    }

    /// Looks whether the kernel still goes by the counter, unless another thread does so this
    /// moment.
    #[cold]
    fn look(&self, nanos: u64) {
        let at = self.look_at.load(Ordering::Relaxed);
        let taken = nanos >= at
            && (self.look_at)
                .compare_exchange(at, nanos + LOOK, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        // A file that cannot be read, for want of a descriptor perhaps, says nothing. It is read
        // again a second later.
        if taken && (self.source)().is_ok_and(|source| !is_counter(&source)) {
            self.rate.store(USELESS, Ordering::Relaxed);
        }
    }

    /// See [`Counter::rate`]; zero where it is not known, or of no use.
    fn known_rate(&self) -> u64 {
        match self.rate.load(Ordering::Relaxed) {
            0 => self.measured().unwrap_or(0),
            USELESS => 0,
            known => known,
        }
    }

    /// The rate, if it has been long enough since the [beginning](begin).
    fn measured(&self) -> Option<u64> {
        let (first, began) = begin()?;
        // At both ends the counter is read on the inner side: a tick comes out too long rather than
        // too short, by what the thread was stopped for in between. Then the counter is used for
        // less than `SPAN`, no more.
        let ticks = counter().checked_sub(first)?;
        let nanos = monotonic() - began;
        if nanos < BASELINE {
            return None;
        }
        let rate = (u128::from(nanos) << 32).checked_div(u128::from(ticks))?;
        let rate = u64::try_from(rate + rate / 4)
            .ok()
            .filter(|&rate| rate != 0 && rate < USELESS)?;
        // Not if another thread has found meanwhile that the counter is of no use.
        let found = self
            .rate
            .compare_exchange(0, rate, Ordering::Relaxed, Ordering::Relaxed);
        (found != Err(USELESS)).then_some(rate)
    }
}

/// When the kernel was asked last by a thread, and what it has been told since.
struct Last {
    /// The counter, just before.
    ticks: Cell<u64>,
    /// What the kernel said.
    nanos: Cell<u64>,
    /// For so many ticks that does.
    span: Cell<u64>,
    /// See [`Counter::rate`].
    rate: Cell<u64>,
    /// The last answer that was ahead of the kernel's.
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
    /// The ticks since the kernel was asked, if they are few enough.
    #[inline]
    fn ticks(&self) -> Option<u64> {
        let span = self.span.get();
        if span == 0 {
            return None;
        }
        // A counter that went back, as that of a machine which was suspended, is far ahead.
        let ticks = counter().wrapping_sub(self.ticks.get());
        (ticks < span).then_some(ticks)
    }

    /// Not before `moment`, and later than all answers that are ahead.
    #[inline]
    fn give(&self, moment: u64) -> u64 {
        let given = moment.max(self.given.get() + 1);
        self.given.set(given);
        given
    }

    /// What is answered so many ticks after the kernel was asked.
    #[inline]
    fn ahead(&self, ticks: u64) -> u64 {
        self.give(self.nanos.get() + AHEAD + ((ticks * self.rate.get()) >> 32))
    }

    /// What is answered by who asks the kernel.
    #[inline]
    fn asked(&self) -> u64 {
        let nanos = self.ask(&COUNTER);
        // It may have been told that it is later.
        if nanos > self.given.get() {
            nanos
        } else {
            self.give(nanos)
        }
    }

    #[cold]
    #[inline(never)]
    fn ask(&self, known: &Counter) -> u64 {
        let ticks = counter();
        let nanos = monotonic();
        if self.span.get() == 0 {
            let rate = known.known_rate();
            if rate == 0 {
                return nanos;
            }
            self.rate.set(rate);
            self.span.set((SPAN << 32) / rate);
        } else if !known.is_of_use(nanos) {
            self.span.set(0);
            return nanos;
        } else if self.is_slow(ticks, nanos) && self.is_slow(counter(), nanos) {
            known.rate.store(USELESS, Ordering::Relaxed);
            self.span.set(0);
            return nanos;
        }
        self.ticks.set(ticks);
        self.nanos.set(nanos);
        nanos
    }

    /// Whether the counter says that less time has passed since the kernel was asked than the kernel says.
    fn is_slow(&self, ticks: u64, nanos: u64) -> bool {
        let ticks = ticks.wrapping_sub(self.ticks.get());
        let most = (u128::from(ticks) * u128::from(self.rate.get())) >> 32;
        u128::from(nanos - self.nanos.get()) > most + u128::from(AHEAD)
    }
}

/// Returns the time to calculate a deadline from, in ns of the kernel's monotonic clock: a moment
/// that has not passed, and is no further ahead than [`AT_MOST_AHEAD`]. Where the counter is used,
/// each answer is later than the thread's last.
///
/// All deadlines that are so far from now are calculated from this function's answer.
#[inline]
pub(crate) fn now_for_deadline() -> u64 {
    LAST.with(|last| match last.ticks() {
        Some(ticks) => last.ahead(ticks),
        None => last.asked(),
    })
}

/// A moment of the kernel's monotonic clock, in ns, that is not to come, and is no further back than [`SPAN`].
#[inline]
pub(crate) fn not_after_now() -> u64 {
    LAST.with(|last| match last.ticks() {
        Some(_) => last.nanos.get(),
        None => last.ask(&COUNTER),
    })
}

/// Begins to measure the rate, if the counter is of use.
pub(crate) fn prepare() {
    begin();
}

/// When the measurement began: the counter, just after the kernel was asked, and what the kernel said.
fn begin() -> Option<(u64, u64)> {
    static BEGIN: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    *BEGIN.get_or_init(|| {
        is_the_kernels().then(|| {
            let nanos = monotonic();
            (counter(), nanos)
        })
    })
}

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. A process that has forbidden it to itself cannot read
    // the kernel's clock either, which is read by it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// There is none that is known to be the kernel's.
#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Whether the kernel tells the time by [`counter`], which it does where that can be relied on.
fn is_the_kernels() -> bool {
    cfg!(all(target_arch = "x86_64", not(tourbillon_sim)))
        && kernels_source().is_ok_and(|source| is_counter(&source))
}

/// By what the kernel says that it tells the time.
fn kernels_source() -> io::Result<String> {
    fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Whether that is [`counter`].
fn is_counter(source: &str) -> bool {
    source.trim() == "tsc"
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::AtomicBool,
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    /// Waits until the rate can be known.
    fn prepared() {
        prepare();
        thread::sleep(Duration::from_nanos(2 * BASELINE));
    }

    #[test]
    fn what_is_answered_has_not_passed_and_comes_soon() {
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
    fn in_a_burst_answers_grow_and_the_counter_is_used_where_it_is_the_kernels() {
        prepared();
        let (mut last, mut of_the_counter) = (0, 0);
        for _ in 0..1_000_000 {
            let moment = now_for_deadline();
            assert!(moment > last);
            of_the_counter += u64::from(LAST.with(|last| last.given.get()) == moment);
            last = moment;
        }
        // A thread that is stopped all the time is still one that asks twice between two stops.
        assert_eq!(of_the_counter > 0, is_the_kernels());
        assert!(monotonic() + AT_MOST_AHEAD >= last);
    }

    #[test]
    fn no_answer_has_passed_for_who_sent_a_message_before() {
        prepared();
        let (sent, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    sent.store(monotonic(), Ordering::Release);
                }
            });
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(200) {
                for _ in 0..1_000 {
                    let message = sent.load(Ordering::Acquire);
                    let moment = now_for_deadline();
                    assert!(moment >= message, "{moment} has passed at {message}");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_is_not_to_come_is_not_long_ago() {
        prepared();
        for _ in 0..100_000 {
            let (before, moment) = (monotonic(), not_after_now());
            assert!(moment <= monotonic());
            // The span is by an upper bound of the rate, so that it is shorter; and a thread may be stopped after it
            // has looked at the counter, and before it reads what the kernel said: that is then as old as it was.
            assert!(
                moment + 2 * SPAN >= before,
                "{moment} is long before {before}"
            );
        }
    }

    #[test]
    fn a_counter_that_got_slow_is_found_out() {
        let last = Last {
            ticks: Cell::new(1_000),
            nanos: Cell::new(1_000),
            span: Cell::new(1),
            // A tick is a ns.
            rate: Cell::new(1 << 32),
            given: Cell::new(0),
        };
        assert!(!last.is_slow(2_000, 2_000));
        assert!(!last.is_slow(2_000, 2_000 + AHEAD));
        assert!(last.is_slow(2_000, 2_001 + AHEAD));
        assert!(
            !last.is_slow(0, u64::MAX / 2),
            "it was set back, and is not used until it is asked"
        );
    }

    /// As the kernel's watchdog does with a counter that it finds unstable.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_counter_that_the_kernel_gives_up_is_not_used_any_more() {
        thread_local! {
            static SAYS: Cell<Option<&'static str>> = const { Cell::new(Some("tsc\n")) };
            static LOOKS: Cell<u32> = const { Cell::new(0) };
        }
        fn source() -> io::Result<String> {
            LOOKS.set(LOOKS.get() + 1);
            let says = SAYS.get().map(str::to_owned);
            says.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
        }
        // A tick is taken to be a µs, so that the counter is never found slow.
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
            last.ask(&known);
            last.span.get() > 0
        };
        let a_second_passes = || known.look_at.store(0, Ordering::Relaxed);
        assert!(uses(&one) && uses(&other), "both begin by it");
        assert!(uses(&one) && uses(&other));
        assert_eq!(LOOKS.get(), 1, "one looks for all");
        a_second_passes();
        SAYS.set(None);
        assert!(uses(&one), "what cannot be read says nothing");
        SAYS.set(Some("hpet\n"));
        assert!(uses(&one), "it is looked once a second");
        assert_eq!(LOOKS.get(), 2);
        a_second_passes();
        assert!(!uses(&one));
        assert!(
            !uses(&other),
            "another thread hears of it as it asks the kernel"
        );
        assert_eq!(LOOKS.get(), 3);
        // Where it comes back, the kernel may give it up again.
        SAYS.set(Some("tsc\n"));
        a_second_passes();
        assert!(!uses(&one) && !uses(&other) && !uses(&fresh()));
    }
}
