//! Settings of the calling thread.

use std::sync::OnceLock;

/// The default timer slack of the process's threads, in ns.
static DEFAULT_SLACK: OnceLock<libc::c_ulong> = OnceLock::new();

/// Reads the default timer slack on the first call. This must precede the start of any worker,
/// because a worker's children inherit its own setting.
pub(crate) fn note_slack() {
    DEFAULT_SLACK.get_or_init(|| {
        // SAFETY: the call takes no pointers.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        // Some sandboxes refuse the call, and real-time threads have no slack. 0 means the default.
        libc::c_ulong::try_from(slack).unwrap_or(0)
    });
}

/// Sets the timer slack of the calling thread to 1 ns. By default the kernel may delay its wake-ups
/// by 50 µs. Some sandboxes refuse this, which only costs precision.
pub(crate) fn wake_on_time() {
    set_slack(1);
}

/// Sets the timer slack of the calling thread to 1 ns, as [`wake_on_time`] does, until the guard is
/// dropped.
pub(crate) fn wake_on_time_until_dropped() -> Precise {
    // SAFETY: the call takes no pointers.
    let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    wake_on_time();
    Precise(before)
}

/// Restores the timer slack of the thread when it is dropped. It stays on the thread that made it.
pub(crate) struct Precise(libc::c_int);

impl Drop for Precise {
    fn drop(&mut self) {
        // A negative number is an error of the call, and a real-time thread has no slack: there is
        // nothing to restore.
        if let Ok(before @ 1..) = libc::c_ulong::try_from(self.0) {
            set_slack(before);
        }
    }
}

/// Sets the timer slack of the calling thread to the default.
pub(crate) fn wake_by_default() {
    if let Some(&slack) = DEFAULT_SLACK.get() {
        set_slack(slack);
    }
}

/// Gives way to all other threads: raises the niceness of the calling thread, and of those it
/// starts later, by 10. Also removes an inherited real-time priority, under which niceness has no
/// effect. This needs no privilege. Some sandboxes refuse it, which only costs speed of other
/// threads.
#[cfg(feature = "inspect")]
pub(crate) fn be_nice() {
    // Use the system call: musl's functions of these names fail, since they cannot act on one
    // thread, and glibc's return a cached value. A thread that has just started has no
    // `SCHED_RESET_ON_FORK` in the result, because it is not inherited.
    // SAFETY: the call takes no pointers. 0 means the calling thread.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    let is_real_time = |policy| {
        let policies = [libc::SCHED_FIFO, libc::SCHED_RR];
        policies.map(libc::c_long::from).contains(&policy)
    };
    // `SCHED_IDLE` and `SCHED_BATCH` give way more than `SCHED_OTHER`, so leave them.
    if is_real_time(policy) {
        let priority: libc::c_int = 0;
        // SAFETY: `sched_param` begins with the priority, the only part that the kernel reads.
        unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_OTHER,
                &raw const priority,
            );
        }
    }
    // SAFETY: the call takes no pointers. On Linux it affects the calling thread only.
    unsafe { libc::nice(10) };
}

fn set_slack(nanos: libc::c_ulong) {
    // SAFETY: the call takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos, 0, 0, 0) };
}
