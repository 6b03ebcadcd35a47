//! Reading clocks that the standard library does not.

/// `CLOCK_BOOTTIME`, in ns.
pub(crate) fn boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// `CLOCK_MONOTONIC`, in ns: the clock of `std::time::Instant`, as the kernel counts it.
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The processor time that the calling thread has had, in ns. A system call, unlike the others.
pub(crate) fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer. The call fails for unknown clocks alone, and
    // Linux has had these since 2.6.39.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}
