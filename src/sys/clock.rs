//! Clocks of the operating system.

use std::{
    hash::{Hash, Hasher},
    mem::MaybeUninit,
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};

use crate::util::nanos::nanos;

/// Returns `CLOCK_BOOTTIME` in ns.
pub(crate) fn boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Returns `CLOCK_MONOTONIC` in ns. This is the clock of `std::time::Instant`.
#[inline]
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time of the calling thread in ns. Unlike the others, this needs a system
/// call.
pub(crate) fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of the process in ns. This needs a system call.
pub(crate) fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the current time as an `Instant`.
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Returns the time of day.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is a valid place for the result. The call only fails for unknown clocks, and
    // Linux has had these since 2.6.39.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    // Neither part is negative: all these clocks start at or after zero.
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// The `Instant` at which [`monotonic`] was zero.
struct Zero {
    at: Instant,
    /// Whether the [`Parts`] of an instant count from it.
    has_parts: bool,
}

/// All calls return the same value.
#[inline]
fn found_zero() -> &'static Zero {
    static ZERO: OnceLock<Zero> = OnceLock::new();
    ZERO.get_or_init(find_zero)
}

/// Returns the `Instant` at which [`monotonic`] was zero. All calls return the same value.
#[inline]
pub(crate) fn zero() -> Instant {
    found_zero().at
}

/// Returns the time from the [zero](zero) to an instant, in ns. Instants before the zero are
/// negative, and an instant that is out of range becomes the last moment.
#[inline]
pub(crate) fn since_zero(instant: Instant) -> i64 {
    let zero = found_zero();
    // The subtraction is a call of several ns, which each timer would pay that a library arms.
    match Parts::of(instant).filter(|_| zero.has_parts) {
        Some(nanos) => nanos,
        None => difference(instant, zero.at),
    }
}

/// Returns the time from `zero` to an instant, in ns.
#[cold]
fn difference(instant: Instant, zero: Instant) -> i64 {
    let nanos = |since: Duration| i64::try_from(nanos(since)).unwrap_or(i64::MAX);
    match instant.checked_duration_since(zero) {
        Some(since) => nanos(since),
        None => -nanos(zero.duration_since(instant)),
    }
}

/// The parts of an `Instant`: its seconds, and then its nanoseconds.
///
/// The standard library does not reveal them, but an instant passes them to a hasher: this one.
#[derive(Default)]
struct Parts {
    secs: Option<i64>,
    nanos: Option<u32>,
    /// Whether there was anything else.
    others: bool,
}

impl Parts {
    /// Returns the sum of the parts in ns, if there are these two and no others.
    #[inline]
    fn of(instant: Instant) -> Option<i64> {
        let mut parts = Self::default();
        instant.hash(&mut parts);
        let (secs, nanos) = (parts.secs?, parts.nanos?);
        let sum = secs.saturating_mul(1_000_000_000);
        (!parts.others).then_some(sum.saturating_add(nanos.into()))
    }
}

impl Hasher for Parts {
    #[inline]
    fn write_i64(&mut self, secs: i64) {
        self.others |= self.secs.replace(secs).is_some();
    }

    #[inline]
    fn write_u32(&mut self, nanos: u32) {
        self.others |= self.nanos.replace(nanos).is_some();
    }

    #[inline]
    fn write(&mut self, _: &[u8]) {
        self.others = true;
    }

    fn finish(&self) -> u64 {
        0
    }
}

#[cold]
fn find_zero() -> Zero {
    let at = find_zero_instant();
    let later = at + Duration::new(7, 11);
    // If the library counts differently one day, the parts do not add up here.
    let has_parts = Parts::of(at) == Some(0) && Parts::of(later) == Some(7_000_000_011);
    Zero { at, has_parts }
}

fn find_zero_instant() -> Instant {
    let before = monotonic();
    let instant = Instant::now();
    let after = monotonic();
    // If the exact value is unknown, use a value that is late by at most the time of one clock
    // reading. So a converted deadline is never too early.
    let exact = absolute(instant).filter(|at| (before..=after).contains(at));
    instant - Duration::from_nanos(exact.unwrap_or(after))
}

/// Returns the kernel's time of an instant in ns, which the standard library does not reveal.
///
/// The earliest `Instant` is at −2^63 seconds if it counts like the kernel. So the distance to the
/// earliest one gives the absolute time.
fn absolute(instant: Instant) -> Option<u64> {
    let secs = largest(u64::MAX, |secs| {
        instant.checked_sub(Duration::from_secs(secs)).is_some()
    });
    let rest = instant.checked_sub(Duration::from_secs(secs))?;
    let nanos = largest(999_999_999, |nanos| {
        rest.checked_sub(Duration::from_nanos(nanos)).is_some()
    });
    secs.checked_sub(1 << 63)?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

/// Returns the largest number up to `most` for which `holds` is true. `holds` must be true for all
/// smaller numbers.
fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut least, mut most) = (0, most);
    while least < most {
        let middle = most - (most - least) / 2;
        if holds(middle) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zero_is_exact() {
        for _ in 0..100 {
            let before = monotonic();
            let instant = Instant::now();
            let after = monotonic();
            let at = absolute(instant).expect("it counts as the kernel does");
            assert!((before..=after).contains(&at));
        }
        assert_eq!(absolute(zero()), Some(0));
    }

    #[test]
    fn the_parts_of_an_instant_say_what_the_difference_does() {
        let now = Instant::now();
        assert!(found_zero().has_parts);
        for offset in [0, 1, 999_999_999, 1_000_000_000, 1 << 50, 1 << 62] {
            let offset = Duration::from_nanos(offset);
            let moments = [now.checked_add(offset), now.checked_sub(offset)];
            for at in moments.into_iter().flatten() {
                assert_eq!(since_zero(at), difference(at, zero()));
            }
        }
        let ages = now + Duration::from_secs(1 << 40);
        assert_eq!([since_zero(ages), difference(ages, zero())], [i64::MAX; 2]);
    }

    #[test]
    fn the_largest_number_is_found() {
        for least in [0, 1, 2, 999, 1_000] {
            assert_eq!(largest(1_000, |n| n <= least), least);
        }
        assert_eq!(largest(u64::MAX, |_| true), u64::MAX);
    }
}
