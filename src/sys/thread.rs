//! Settings of the calling thread.

/// Lets the kernel wake the calling thread on time: a timer slack of 1 ns in place of the 50 µs by
/// which it may delay a wake-up. Refused by some sandboxes, which costs precision alone.
pub(crate) fn wake_on_time() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
}

/// The CPU time that this process has used, user and system, in seconds.
#[cfg(feature = "cli")]
pub(crate) fn process_cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for what is written, and zeroes are a valid rusage.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
