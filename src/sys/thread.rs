//! Settings of the calling thread.

/// Lets the kernel wake the calling thread on time: a timer slack of 1 ns in place of the 50 µs by
/// which it may delay a wake-up. Refused by some sandboxes, which costs precision alone.
pub(crate) fn wake_on_time() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
}
