//! Reading clocks: those that the standard library does not, and its own without its arithmetic.

use std::{
    mem::MaybeUninit,
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};

use super::kernel;

/// `CLOCK_BOOTTIME`, in ns.
pub(crate) fn boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// `CLOCK_MONOTONIC`, in ns: the clock of `std::time::Instant`, as the kernel counts it.
#[inline]
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The processor time that the calling thread has had, in ns. A system call, unlike the others.
pub(crate) fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The present, as the standard library's moment.
pub(crate) fn instant() -> Instant {
    #[cfg(tourbillon_sim)]
    return zero() + Duration::from_nanos(monotonic());
    #[cfg(not(tourbillon_sim))]
    Instant::now()
}

/// The time of day.
pub(crate) fn wall() -> SystemTime {
    #[cfg(tourbillon_sim)]
    return SystemTime::UNIX_EPOCH + Duration::from_nanos(read(libc::CLOCK_REALTIME));
    #[cfg(not(tourbillon_sim))]
    SystemTime::now()
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is a valid place for the answer. The call fails for unknown clocks alone, and
    // Linux has had these since 2.6.39.
    let time = unsafe {
        kernel::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    // Neither is negative: both clocks begin when the machine does.
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// The moment of the standard library at which [`monotonic`] said zero. The same for all calls.
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
    // Late by what it takes to read the clock, where the exact moment is not to be had: so no
    // deadline becomes earlier when it is converted.
    let exact = since_zero(instant).filter(|at| (before..=after).contains(at));
    instant - Duration::from_nanos(exact.unwrap_or(after))
}

/// The ns of the kernel's clock at an instant, which has no way to ask for them. It can be brought
/// back to the first second that there is for it, −2^63 where it counts as the kernel does.
fn since_zero(instant: Instant) -> Option<u64> {
    let secs = greatest(u64::MAX, |secs| {
        instant.checked_sub(Duration::from_secs(secs)).is_some()
    });
    let rest = instant.checked_sub(Duration::from_secs(secs))?;
    let nanos = greatest(999_999_999, |nanos| {
        rest.checked_sub(Duration::from_nanos(nanos)).is_some()
    });
    secs.checked_sub(1 << 63)?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

/// The greatest number up to `most` of which `holds` is true, as it is of all that are smaller.
fn greatest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
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
    fn the_greatest_is_found() {
        for least in [0, 1, 2, 999, 1_000] {
            assert_eq!(greatest(1_000, |n| n <= least), least);
        }
        assert_eq!(greatest(u64::MAX, |_| true), u64::MAX);
    }
}
