//! Settings of the calling thread.

use std::sync::OnceLock;

/// The timer slack that threads of the process have, in ns.
static DEFAULT_SLACK: OnceLock<libc::c_ulong> = OnceLock::new();

/// Reads the timer slack that threads have, the first time that this is called: before any worker was
/// started, since its children inherit what it sets.
pub(crate) fn note_slack() {
    DEFAULT_SLACK.get_or_init(|| {
        // SAFETY: no pointers.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        // Refused, or none as of threads with real-time priorities: 0 means the default.
        libc::c_ulong::try_from(slack).unwrap_or(0)
    });
}

/// Lets the kernel wake the calling thread on time: a timer slack of 1 ns in place of the 50 µs by
/// which it may delay a wake-up. Refused by some sandboxes, which costs precision alone.
pub(crate) fn wake_on_time() {
    set_slack(1);
}

/// Gives the calling thread the timer slack that threads of the process have.
pub(crate) fn wake_by_default() {
    if let Some(&slack) = DEFAULT_SLACK.get() {
        set_slack(slack);
    }
}

/// Lets all others go first: makes the calling thread, and those that it starts from now on, nicer by 10.
/// Refused by some sandboxes, which costs the others.
#[cfg(feature = "inspect")]
pub(crate) fn be_nice() {
    // SAFETY: no pointers. (On Linux this is a thread's alone, and not its process's.)
    unsafe { libc::nice(10) };
}

fn set_slack(nanos: libc::c_ulong) {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos, 0, 0, 0) };
}
