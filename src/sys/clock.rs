//! Clocks of the operating system.

use std::{
    mem::MaybeUninit,
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};

use super::kernel;

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

/// Returns the current time as an `Instant`.
pub(crate) fn instant() -> Instant {
    #[cfg(tourbillon_sim)]
    return zero() + Duration::from_nanos(monotonic());
    #[cfg(not(tourbillon_sim))]
    Instant::now()
}

/// Returns the time of day.
pub(crate) fn wall() -> SystemTime {
    #[cfg(tourbillon_sim)]
    return SystemTime::UNIX_EPOCH + Duration::from_nanos(read(libc::CLOCK_REALTIME));
    #[cfg(not(tourbillon_sim))]
    SystemTime::now()
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is a valid place for the result. The call only fails for unknown clocks, and
    // Linux has had these since 2.6.39.
    let time = unsafe {
        kernel::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    // Neither part is negative: all these clocks start at or after zero.
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Returns the `Instant` at which [`monotonic`] was zero. All calls return the same value.
#[inline]
pub(crate) fn zero() -> Instant {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    *ZERO.get_or_init(find_zero)
}

#[cold]
fn find_zero() -> Instant {
    let before = monotonic();
    let instant = Instant::now();
    let after = monotonic();
    // If the exact value is unknown, use a value that is late by at most the time of one clock
    // reading. So a converted deadline is never too early.
    let exact = since_zero(instant).filter(|at| (before..=after).contains(at));
    instant - Duration::from_nanos(exact.unwrap_or(after))
}

/// Returns the kernel's time of an instant in ns, which the standard library does not reveal.
///
/// The earliest `Instant` is at −2^63 seconds if it counts like the kernel. So the distance to the
/// earliest one gives the absolute time.
fn since_zero(instant: Instant) -> Option<u64> {
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
            let at = since_zero(instant).expect("it counts as the kernel does");
            assert!((before..=after).contains(&at));
        }
        assert_eq!(since_zero(zero()), Some(0));
    }

    #[test]
    fn the_largest_number_is_found() {
        for least in [0, 1, 2, 999, 1_000] {
            assert_eq!(largest(1_000, |n| n <= least), least);
        }
        assert_eq!(largest(u64::MAX, |_| true), u64::MAX);
    }
}
