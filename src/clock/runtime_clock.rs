//! The clock of a runtime: nanoseconds since the runtime was built.
//!
//! A clock that was never paused follows the monotonic clock. The first pause sets a flag that is
//! never cleared. From then on, what the clock shows is kept under a mutex. While the clock is
//! paused, an atomic number has the same, so that a reading takes no lock: a program that simulates
//! machines reads a paused clock more often than anything else. The number changes under the mutex
//! alone. A reader that finds that it stands for a clock that runs takes the mutex.
//!
//! **Invariant: a clock never goes back.** A reader takes the monotonic time
//! *first* and checks the flag then. The thread that pauses sets the flag first, and then reads the
//! time at which the clock stops. So a reader that finds the flag clear has a time that is not
//! later than the paused time. (A deadline may have been calculated from a moment slightly in the
//! future: see [`ticks`]. So the clock stops at a time that is further ahead than all of these.)

use std::{ops::RangeInclusive, sync::PoisonError, time::Duration};

use tourbillon_shards::NEVER;

use crate::{
    clock::{
        instant::Instant,
        looked,
        other::{Offsets, OtherClock},
    },
    sys,
    sys::{
        sync::{
            Mutex,
            atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
        },
        ticks,
    },
    util::nanos::nanos,
};

/// The number of existing clocks that were ever paused. While it is zero, no thread needs to look
/// up in which runtime it reads the time.
static WARPED: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any clock of the process may differ from the monotonic clock.
#[inline]
pub(crate) fn any_warped() -> bool {
    WARPED.load(Ordering::Relaxed) != 0
}

/// Translates between instants and a shard's nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    /// Creates an epoch that counts from `origin`.
    pub(crate) fn new(origin: Instant) -> Self {
        Self(origin)
    }

    /// Converts an instant to ns since the epoch. Instants before the epoch become zero, instants
    /// out of range become [`NEVER`].
    #[inline]
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        let (at, zero) = (instant.kernel(), self.0.kernel());
        // The distance of two 64-bit numbers fits into 64 unsigned bits. A negative distance wraps
        // to a large one: the epoch is less than a century after the kernel's zero.
        let distance = at.wrapping_sub(zero) as u64;
        if distance < NEVER {
            return distance;
        }
        if at <= zero { 0 } else { NEVER }
    }

    /// Converts a deadline in ns to an instant.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.0 + Duration::from_nanos(nanos)
    }

    /// Converts a reading of the kernel's clock to ns since the epoch.
    #[inline]
    fn kernel(&self, nanos: u64) -> u64 {
        self.nanos(Instant::from_kernel(nanos))
    }

    /// Returns the current time of the kernel's clock, in ns since the epoch.
    #[inline]
    fn now(&self) -> u64 {
        self.kernel(sys::clock::monotonic())
    }
}

/// The clock of a runtime, which may be paused, advanced and resumed.
#[derive(Debug)]
pub(crate) struct Clock {
    epoch: Epoch,
    /// Whether the clock was ever paused.
    warped: AtomicBool,
    /// What the clock shows, in ns, while it is paused. Otherwise [`NEVER`].
    frozen: AtomicU64,
    warp: Mutex<Warp>,
    others: Offsets,
}

/// What a clock shows, relative to the monotonic clock.
#[derive(Clone, Copy, Debug)]
enum Warp {
    /// Paused: the clock shows this, in ns.
    Frozen(u64),
    /// Resumed: the clock minus the monotonic clock's ns since the epoch, wrapping.
    Skewed(u64),
}

/// The latest time that a clock can show that is or was paused. Anything later is [`NEVER`].
const LAST: u64 = NEVER - 1;

impl Clock {
    /// Creates a running clock that starts at zero.
    pub(crate) fn new() -> Self {
        // The rate of the counter is measured from here on, and known some time later.
        ticks::prepare();
        Self {
            epoch: Epoch::new(Instant::from_kernel(sys::clock::monotonic())),
            warped: AtomicBool::new(false),
            frozen: AtomicU64::new(NEVER),
            warp: Mutex::new(Warp::Skewed(0)),
            others: Offsets::default(),
        }
    }

    fn warp(&self) -> crate::sys::sync::MutexGuard<'_, Warp> {
        self.warp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the monotonic clock, in ns since the epoch.
    #[inline]
    pub(crate) fn real(&self) -> u64 {
        self.epoch.now()
    }

    /// Notes that the worker of this thread looks at its timers, at `real`.
    #[inline]
    pub(crate) fn note_look(&self, real: u64) {
        looked::note(self.epoch.0.kernel().saturating_add_unsigned(real));
    }

    /// Returns the current time, in ns. An [`Instant`] that is read afterwards is not earlier.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // A paused clock needs no reading of the kernel's, which takes longer than all else here.
        if self.was_paused() {
            return self.warped();
        }
        self.present(self.real())
    }

    /// Returns a time that is not before the present, for calculating deadlines: see [`ticks`].
    #[inline]
    pub(crate) fn now_for_deadline(&self) -> u64 {
        self.present(self.epoch.kernel(ticks::now_for_deadline()))
    }

    /// Returns whether `instant` is no later than [`now`](Clock::now): see
    /// [`Instant::has_passed`].
    #[inline]
    pub(crate) fn has_passed(&self, instant: Instant) -> bool {
        // As in `now`, the flag is read after the time.
        if !self.was_paused() {
            let passed = looked::has_passed(instant.kernel());
            if !self.was_paused() {
                return passed;
            }
        }
        self.nanos(instant) <= self.now()
    }

    /// Returns the current time in ns, and the latest time that
    /// [`now_for_deadline`](Clock::now_for_deadline) may have returned on any thread.
    pub(crate) fn told(&self) -> RangeInclusive<u64> {
        // `now_for_deadline` of a clock that was paused is exact. If the clock is paused after this
        // look, the range is too wide, and not too narrow.
        let ahead = if self.was_paused() {
            0
        } else {
            ticks::AT_MOST_AHEAD
        };
        let now = self.now();
        now..=now + ahead
    }

    /// Returns a time that is not after the present, for calculating the rest of a wait: see
    /// [`ticks`].
    #[inline]
    pub(crate) fn not_after_now(&self) -> u64 {
        self.present(self.epoch.kernel(ticks::not_after_now()))
    }

    /// Returns the current time, in ns, given that the caller has just read the [real](Clock::real)
    /// time.
    #[inline]
    pub(crate) fn present(&self, real: u64) -> u64 {
        // The caller has read `real` before this look at the flag: see the invariant at the head of
        // this file.
        if self.was_paused() {
            return self.warped();
        }
        real
    }

    /// Returns the current time of a clock that was paused, in ns.
    #[cold]
    fn warped(&self) -> u64 {
        // A release store wrote the number. So whoever knows, by any message, that the clock has
        // moved sees a number that is no earlier.
        match self.frozen.load(Ordering::Acquire) {
            NEVER => self.warped_now(&self.warp()),
            at => at,
        }
    }

    fn warped_now(&self, warp: &Warp) -> u64 {
        match *warp {
            Warp::Frozen(at) => at,
            // Read the real time under the mutex: a time from before the last change of the skew
            // would be too early.
            // A clock that stands at `NEVER` would look due to a shard without timers.
            Warp::Skewed(skew) => self.real().wrapping_add(skew).min(LAST),
        }
    }

    /// Returns the current time as an [`Instant`] if the clock was ever paused, otherwise `None`.
    #[inline]
    pub(crate) fn warped_instant(&self) -> Option<Instant> {
        self.was_paused().then(|| self.instant(self.warped()))
    }

    /// See [`Epoch::nanos`].
    #[inline]
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        self.epoch.nanos(instant)
    }

    /// See [`Epoch::instant`].
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.epoch.instant(nanos)
    }

    /// Returns the time of another clock: the kernel's, or, if this clock was paused, that of a
    /// clock that advances with this one.
    pub(crate) fn other(&self, other: OtherClock) -> u64 {
        if self.was_paused() {
            return self.others.shown(other, self.now());
        }
        other.real()
    }

    /// Returns what this clock shows when `other` shows `moment`. This clock must have been paused.
    pub(crate) fn own(&self, other: OtherClock, moment: u64) -> u64 {
        self.others.own(other, moment)
    }

    /// Sets another clock to show `shown` now. This clock must have been paused.
    pub(crate) fn set_other(&self, other: OtherClock, shown: u64) {
        // Under the mutex, so that this clock does not move between the reading and the offset.
        let warp = self.warp();
        self.others.set(other, shown, self.warped_now(&warp));
    }

    /// Returns this clock minus the monotonic clock's ns since the epoch (wrapping), or `None`
    /// while it is paused.
    #[inline]
    fn skew(&self) -> Option<u64> {
        if !self.was_paused() {
            // Without the mutex: each sleep of a worker asks this.
            return Some(0);
        }
        match *self.warp() {
            Warp::Frozen(_) => None,
            Warp::Skewed(skew) => Some(skew),
        }
    }

    /// Returns how long it is from `real`, a time of the monotonic clock, until `deadline` if the
    /// clock runs on. Also returns the time of the monotonic clock at `deadline`, in ns, by which
    /// the caller tells what a deadline means before a pause from what it means after it.
    pub(crate) fn until(&self, deadline: u64, real: u64) -> (u64, Duration) {
        let Some(skew) = self.skew() else {
            // Do not wait: the caller is woken when the clock changes, and then asks again.
            return (deadline, Duration::ZERO);
        };
        // No skew moves a clock beyond the range of shards, so this is 63 bits and a sign.
        let at = deadline.wrapping_sub(skew);
        let left = (at as i64).saturating_sub_unsigned(real).max(0);
        (at, Duration::from_nanos(left as u64))
    }

    /// Returns the time of the kernel's monotonic clock at `deadline`, since the clock's zero, or
    /// `None` while this clock is paused.
    pub(crate) fn kernel(&self, deadline: u64) -> Option<Duration> {
        let skew = self.skew()?;
        let since = deadline.wrapping_sub(skew) as i64;
        let at = self.epoch.0.kernel().saturating_add(since).max(0);
        Some(Duration::from_nanos(at as u64))
    }

    /// Returns whether the clock was ever paused.
    ///
    /// A thread that is about to wait by the clock announces that first, then executes a fence, and
    /// then calls this. The thread that pauses wakes all announced waiters afterwards, so one of
    /// the two sees the other.
    #[inline]
    pub(crate) fn was_paused(&self) -> bool {
        self.warped.load(Ordering::Relaxed)
    }

    /// Returns whether the clock is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.was_paused() && matches!(*self.warp(), Warp::Frozen(_))
    }

    /// Pauses the clock if it runs.
    pub(crate) fn pause(&self) {
        let mut warp = self.warp();
        let mut ahead = 0;
        if !self.was_paused() {
            // The first pause: from here on the other clocks advance with this one.
            let now = self.real();
            for other in [OtherClock::Wall, OtherClock::Boot] {
                self.others.set(other, other.real(), now);
            }
            // A deadline may have been calculated from a time up to this far ahead. Stop the clock
            // no earlier, so that no such deadline is further away than it was.
            ahead = ticks::AT_MOST_AHEAD;
        }
        // Set the flag before reading the time: see the head of this file.
        if !self.warped.swap(true, Ordering::AcqRel) {
            WARPED.fetch_add(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        let at = self.warped_now(&warp).saturating_add(ahead).min(LAST);
        *warp = Warp::Frozen(at);
        self.frozen.store(at, Ordering::Release);
    }

    /// Resumes the clock, from the time that it shows, if it is paused.
    pub(crate) fn resume(&self) {
        let mut warp = self.warp();
        if let Warp::Frozen(at) = *warp {
            // Continue from the shown time, at the rate of the monotonic clock.
            *warp = Warp::Skewed(at.wrapping_sub(self.real()));
            self.frozen.store(NEVER, Ordering::Release);
        }
    }

    /// Moves a clock that is or was paused forward, at most to its last moment.
    pub(crate) fn advance(&self, by: Duration) {
        let mut warp = self.warp();
        let now = self.warped_now(&warp);
        // Never move the clock to `NEVER`, which means "no deadline" to a shard.
        let by = nanos(by).min(LAST.saturating_sub(now));
        match &mut *warp {
            Warp::Frozen(at) => {
                *at += by;
                self.frozen.store(*at, Ordering::Release);
            }
            // A clock that runs jumps, and runs on from there.
            Warp::Skewed(skew) => *skew = skew.wrapping_add(by),
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if *self.warped.get_mut() {
            // Without such clocks, threads need not look for their runtime to read the time.
            WARPED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant as StdInstant;

    use super::*;

    #[test]
    fn instants_translate_exactly_and_saturate() {
        let clock = Clock::new();
        let origin = clock.epoch.0;
        let deadline = origin + Duration::new(3, 7);
        assert_eq!(clock.nanos(deadline), 3_000_000_007);
        assert_eq!(clock.instant(3_000_000_007), deadline);
        if let Some(before) = origin.checked_sub(Duration::from_millis(1)) {
            assert_eq!(clock.nanos(before), 0);
        }
        let century = origin + Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(clock.nanos(century), NEVER);
        assert_eq!(clock.nanos(Instant::far_future()), NEVER);
    }

    #[test]
    fn a_deadline_translates_to_kernel_time() {
        let clock = Clock::new();
        let before = Duration::from_nanos(sys::clock::monotonic());
        let at = clock.kernel(clock.now()).unwrap();
        assert!(at >= before, "not before the reading");
        let later = clock.kernel(clock.now() + 5_000_000_000).unwrap();
        assert!(later - at >= Duration::from_secs(5));
        clock.pause();
        assert_eq!(clock.kernel(clock.now()), None);
        clock.advance(Duration::from_secs(7));
        clock.resume();
        let advanced = clock.kernel(clock.now()).unwrap();
        assert!(advanced >= at);
        assert!(advanced <= Duration::from_nanos(sys::clock::monotonic()) + Duration::from_secs(1));
        assert_eq!(clock.kernel(0).unwrap().max(at), at, "it has passed");
    }

    #[test]
    fn a_paused_clock_stops_and_advances_exactly() {
        let clock = Clock::new();
        let before = clock.now();
        clock.pause();
        let at = clock.now();
        assert!(at >= before);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(clock.now(), at);
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), at + 5_000_000_000);
        assert_eq!(clock.warped_instant(), Some(clock.instant(clock.now())));
        clock.pause();
        assert_eq!(clock.now(), at + 5_000_000_000);
    }

    #[test]
    fn a_resumed_clock_continues_from_the_time_that_it_showed() {
        let clock = Clock::new();
        clock.pause();
        let at = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        clock.resume();
        let since = StdInstant::now();
        let shown = clock.now();
        assert!(shown >= at);
        assert!(
            clock.now() - shown <= since.elapsed().as_nanos() as u64,
            "no faster than real time"
        );
        assert!(
            clock.real() - clock.now() >= 5_000_000,
            "the time of the pause does not count"
        );
        // The skew has changed, so one deadline is now another moment of the monotonic clock.
        let deadline = at + 60_000_000_000;
        let (first, left) = clock.until(deadline, clock.real());
        assert!(left <= Duration::from_secs(60));
        clock.pause();
        clock.advance(Duration::from_secs(10));
        clock.resume();
        let (second, left) = clock.until(deadline, clock.real());
        assert!(left <= Duration::from_secs(50));
        assert!(second < first);
    }

    #[test]
    fn advancing_saturates_at_the_last_moment() {
        let clock = Clock::new();
        clock.pause();
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), LAST);
        clock.resume();
        assert_eq!(clock.now(), LAST);
        assert_eq!(clock.until(0, clock.real()).1, Duration::ZERO);
        clock.pause();
        assert_eq!(clock.now(), LAST);
    }
}
