//! Settings of the calling thread.

use std::sync::OnceLock;

/// The default timer slack of the process's threads, in ns.
static DEFAULT_SLACK: OnceLock<libc::c_ulong> = OnceLock::new();

/// Reads the default timer slack on the first call. This must precede the start of any worker,
/// because a worker's children inherit its own setting.
pub(crate) fn note_slack() {
    // 0 means the default.
    DEFAULT_SLACK.get_or_init(slack);
}

/// Sets the timer slack of the calling thread to 1 ns. By default the kernel may delay its wake-ups
/// by 50 µs. Some sandboxes refuse this, which only costs precision.
pub(crate) fn wake_on_time() {
    set_slack(1);
}

/// Sets the timer slack of the calling thread to 1 ns, as [`wake_on_time`] does, until the guard is
/// dropped.
pub(crate) fn wake_on_time_until_dropped() -> Precise {
    let before = slack();
    wake_on_time();
    Precise(before)
}

/// Restores the timer slack of the thread when it is dropped. It stays on the thread that made it.
pub(crate) struct Precise(libc::c_ulong);

impl Drop for Precise {
    fn drop(&mut self) {
        // If it is not known, there is nothing to restore.
        if self.0 > 0 {
            set_slack(self.0);
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

/// Returns the timer slack of the calling thread, in ns, or 0 if it is not known: some sandboxes
/// refuse the call, and real-time threads have no slack.
fn slack() -> libc::c_ulong {
    // SAFETY: the call takes no pointers.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    libc::c_ulong::try_from(slack).unwrap_or(0)
}

fn set_slack(nanos: libc::c_ulong) {
    // SAFETY: the call takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos, 0, 0, 0) };
}
