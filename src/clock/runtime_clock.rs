//! The clock of a runtime: nanoseconds since it was built, by the monotonic clock, or by hand.
//!
//! A clock that was never paused is the monotonic one. The first pause sets a flag for good, by which
//! every later reading goes through a mutex: paused clocks are for tests. Who reads takes the
//! monotonic time *first* and looks at the flag then; who pauses sets the flag, and then reads the
//! time at which the clock stands still. So nobody comes back from the one path with a time that is
//! later than what the other shows. (Who calculates a deadline may have read a moment to come: the clock
//! stands still at one that is further ahead than any of these.)

use std::{ops::RangeInclusive, sync::PoisonError, time::Duration};

use tourbillon_shards::NEVER;

use crate::{
    clock::{
        instant::Instant,
        other::{Offsets, OtherClock},
    },
    sys,
    sys::{
        sync::{
            Mutex,
            atomic::{AtomicBool, AtomicUsize, Ordering, fence},
        },
        ticks,
    },
};

/// How many clocks were ever paused, and are still there: while there is none, nobody asks in whose
/// context it reads the time.
static WARPED: AtomicUsize = AtomicUsize::new(0);

/// Whether any clock of the process may show another time than the monotonic clock's.
#[inline]
pub(crate) fn any_warped() -> bool {
    WARPED.load(Ordering::Relaxed) != 0
}

/// Translates between instants and the nanoseconds in which shards count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    /// Counts from `origin`.
    pub(crate) fn new(origin: Instant) -> Self {
        Self(origin)
    }

    /// An instant in ns: zero for what was before the epoch, [`NEVER`] for what no runtime will see.
    #[inline]
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        let (at, zero) = (instant.kernel(), self.0.kernel());
        // The distance of two numbers of 64 bits has room in 64, without a sign. What was before the epoch, which is no
        // century after the kernel's zero, comes out as far ahead.
        let distance = at.wrapping_sub(zero) as u64;
        if distance < NEVER {
            return distance;
        }
        if at <= zero { 0 } else { NEVER }
    }

    /// The instant of a deadline.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.0 + Duration::from_nanos(nanos)
    }

    /// The moment of the kernel's clock `nanos`.
    #[inline]
    fn kernel(&self, nanos: u64) -> u64 {
        self.nanos(Instant::from_kernel(nanos))
    }

    /// The present, by the kernel's clock.
    #[inline]
    fn now(&self) -> u64 {
        self.kernel(sys::clock::monotonic())
    }
}

/// The clock of a runtime.
#[derive(Debug)]
pub(crate) struct Clock {
    epoch: Epoch,
    /// Whether it was ever paused.
    warped: AtomicBool,
    warp: Mutex<Warp>,
    others: Offsets,
}

/// What a clock that was paused shows.
#[derive(Clone, Copy, Debug)]
enum Warp {
    /// This, in ns.
    Frozen(u64),
    /// So much more than the monotonic clock's nanoseconds since the epoch, or (wrapping) less.
    Skewed(u64),
}

/// The last moment that a paused clock can be brought to: what is later is never.
const LAST: u64 = NEVER - 1;

impl Clock {
    /// A clock that begins now, and runs.
    pub(crate) fn new() -> Self {
        ticks::prepare();
        Self {
            epoch: Epoch::new(Instant::from_kernel(sys::clock::monotonic())),
            warped: AtomicBool::new(false),
            warp: Mutex::new(Warp::Skewed(0)),
            others: Offsets::default(),
        }
    }

    fn warp(&self) -> crate::sys::sync::MutexGuard<'_, Warp> {
        self.warp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The monotonic clock, in ns since the epoch.
    #[inline]
    pub(crate) fn real(&self) -> u64 {
        self.epoch.now()
    }

    /// The present, in ns. Never ahead of what an [`Instant`] read afterwards says.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.present(self.real())
    }

    /// What is not before the present, for a deadline that is calculated from it: see [`ticks`].
    #[inline]
    pub(crate) fn now_for_deadline(&self) -> u64 {
        self.present(self.epoch.kernel(ticks::now_for_deadline()))
    }

    /// The present, in ns, and the latest moment that [`now_for_deadline`](Clock::now_for_deadline) has
    /// told any thread.
    pub(crate) fn told(&self) -> RangeInclusive<u64> {
        let now = self.now();
        // A clock that was paused tells all the same.
        let ahead = if self.was_paused() {
            0
        } else {
            ticks::AT_MOST_AHEAD
        };
        now..=now + ahead
    }

    /// What is not after the present, for how long there is left: see [`ticks`].
    #[inline]
    pub(crate) fn not_after_now(&self) -> u64 {
        self.present(self.epoch.kernel(ticks::not_after_now()))
    }

    /// The same, for who has read the [real](Clock::real) time just now.
    #[inline]
    pub(crate) fn present(&self, real: u64) -> u64 {
        if self.was_paused() {
            return self.warped_now(&self.warp());
        }
        real
    }

    #[cold]
    fn warped_now(&self, warp: &Warp) -> u64 {
        match *warp {
            Warp::Frozen(at) => at,
            // Read under the mutex: what it was when the skew was another would be too early.
            Warp::Skewed(skew) => self.real().wrapping_add(skew).min(NEVER),
        }
    }

    /// What [`Instant::now`] is in the context of this clock's runtime, if that is not what the
    /// monotonic clock says.
    #[inline]
    pub(crate) fn warped_instant(&self) -> Option<Instant> {
        self.was_paused()
            .then(|| self.instant(self.warped_now(&self.warp())))
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

    /// What another clock shows: what the kernel's does, or, if this one was paused, what it shows in
    /// step with this one.
    pub(crate) fn other(&self, other: OtherClock) -> u64 {
        if self.was_paused() {
            return self.others.shown(other, self.now());
        }
        other.real()
    }

    /// What this clock, which was paused, will show where the other one shows `moment`.
    pub(crate) fn own(&self, other: OtherClock, moment: u64) -> u64 {
        self.others.own(other, moment)
    }

    /// Sets another clock, in step with this one that was paused, to what it shows now.
    pub(crate) fn set_other(&self, other: OtherClock, shown: u64) {
        let warp = self.warp();
        self.others.set(other, shown, self.warped_now(&warp));
    }

    /// How much more the clock shows than the monotonic clock's nanoseconds since the epoch, or (wrapping)
    /// less; `None` while it is paused.
    #[inline]
    fn skew(&self) -> Option<u64> {
        if !self.was_paused() {
            return Some(0);
        }
        match *self.warp() {
            Warp::Frozen(_) => None,
            Warp::Skewed(skew) => Some(skew),
        }
    }

    /// How long it is from `real`, a moment of the monotonic clock, until `deadline` if the clock runs, and the moment
    /// of the monotonic clock that this is, in ns: which tells apart what one deadline means before a pause and
    /// after it.
    pub(crate) fn until(&self, deadline: u64, real: u64) -> (u64, Duration) {
        let Some(skew) = self.skew() else {
            // Who is woken by what follows waits anew.
            return (deadline, Duration::ZERO);
        };
        // A skew brings no clock past what shards count in, so this is 63 bits and a sign.
        let at = deadline.wrapping_sub(skew);
        let left = (at as i64).saturating_sub_unsigned(real).max(0);
        (at, Duration::from_nanos(left as u64))
    }

    /// What the kernel's monotonic clock says at `deadline` (since its zero, and not before), if the clock
    /// runs.
    pub(crate) fn kernel(&self, deadline: u64) -> Option<Duration> {
        let skew = self.skew()?;
        let since = deadline.wrapping_sub(skew) as i64;
        let at = self.epoch.0.kernel().saturating_add(since).max(0);
        Some(Duration::from_nanos(at as u64))
    }

    /// Whether the clock was ever paused. To be asked after a fence that follows the announcement of
    /// who is about to wait by the clock: who pauses wakes those after it.
    #[inline]
    pub(crate) fn was_paused(&self) -> bool {
        self.warped.load(Ordering::Relaxed)
    }

    /// Whether the clock is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.was_paused() && matches!(*self.warp(), Warp::Frozen(_))
    }

    /// Stops the clock, if it runs.
    pub(crate) fn pause(&self) {
        let mut warp = self.warp();
        let mut ahead = 0;
        if !self.was_paused() {
            let now = self.real();
            for other in [OtherClock::Wall, OtherClock::Boot] {
                self.others.set(other, other.real(), now);
            }
            // As who has calculated a deadline may be: it is not to be further away than it was.
            ahead = ticks::AT_MOST_AHEAD;
        }
        if !self.warped.swap(true, Ordering::AcqRel) {
            WARPED.fetch_add(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        *warp = Warp::Frozen(self.warped_now(&warp).saturating_add(ahead).min(NEVER));
    }

    /// Lets the clock run on from where it stands, if it is paused.
    pub(crate) fn resume(&self) {
        let mut warp = self.warp();
        if let Warp::Frozen(at) = *warp {
            *warp = Warp::Skewed(at.wrapping_sub(self.real()));
        }
    }

    /// Puts a clock that is or was paused forward; at most to its last moment.
    pub(crate) fn advance(&self, by: Duration) {
        let by = by.as_nanos().try_into().unwrap_or(u64::MAX);
        let mut warp = self.warp();
        let now = self.warped_now(&warp);
        let by = by.min(LAST.saturating_sub(now));
        match &mut *warp {
            Warp::Frozen(at) => *at += by,
            Warp::Skewed(skew) => *skew = skew.wrapping_add(by),
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if *self.warped.get_mut() {
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
    fn the_kernel_knows_the_moment_of_a_deadline() {
        let clock = Clock::new();
        let before = Duration::from_nanos(sys::clock::monotonic());
        let at = clock.kernel(clock.now()).unwrap();
        assert!(at >= before, "not before it");
        let later = clock.kernel(clock.now() + 5_000_000_000).unwrap();
        assert!(later - at >= Duration::from_secs(5));
        clock.pause();
        assert_eq!(clock.kernel(clock.now()), None);
        clock.advance(Duration::from_secs(7));
        clock.resume();
        let put_forward = clock.kernel(clock.now()).unwrap();
        assert!(put_forward >= at);
        assert!(
            put_forward <= Duration::from_nanos(sys::clock::monotonic()) + Duration::from_secs(1)
        );
        assert_eq!(clock.kernel(0).unwrap().max(at), at, "it has passed");
    }

    #[test]
    fn a_paused_clock_stands_still_and_is_put_forward_exactly() {
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
    fn a_resumed_clock_goes_on_from_where_it_stood() {
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
            "no faster than real"
        );
        assert!(
            clock.real() - clock.now() >= 5_000_000,
            "what passed while it was paused does not count"
        );
        // A deadline is another moment of the monotonic clock than it was.
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
    fn no_clock_is_put_past_its_end() {
        let clock = Clock::new();
        clock.pause();
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), LAST);
        clock.resume();
        assert!(clock.now() >= LAST);
        assert_eq!(clock.until(0, clock.real()).1, Duration::ZERO);
        clock.pause();
        assert!(clock.now() <= NEVER);
    }
}
