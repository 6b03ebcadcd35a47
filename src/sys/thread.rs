//! Settings of the calling thread.

use std::sync::OnceLock;

/// The timer slack that threads of the process have, in ns.
static DEFAULT_SLACK: OnceLock<libc::c_ulong> = OnceLock::new();

/// Reads the timer slack that threads have, the first time that this is called: before any worker
/// was started, since its children inherit what it sets.
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

/// Lets all others go first: makes the calling thread, and those that it starts from now on, nicer
/// by 10, and takes from it the real-time priority that it may have inherited, with which niceness
/// means nothing. Needs no privilege; refused by some sandboxes, which costs the others.
#[cfg(feature = "inspect")]
pub(crate) fn be_nice() {
    // By number, since musl refuses to (its functions of these names cannot do it for one thread
    // alone), and glibc's for threads answer what they remember. `SCHED_RESET_ON_FORK` may be in
    // the answer, but not of a thread that has just been started: it is not inherited. SAFETY: no
    // pointers. 0 is the calling thread.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    let is_real_time = |policy| {
        let policies = [libc::SCHED_FIFO, libc::SCHED_RR];
        policies.map(libc::c_long::from).contains(&policy)
    };
    // `SCHED_IDLE` and `SCHED_BATCH` are politer than what this would make of them.
    if is_real_time(policy) {
        let priority: libc::c_int = 0;
        // SAFETY: `sched_param` begins with the priority, which is all that the kernel reads of it.
        unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_OTHER,
                &raw const priority,
            );
        }
    }
    // SAFETY: no pointers. (On Linux this is a thread's alone, and not its process's.)
    unsafe { libc::nice(10) };
}

fn set_slack(nanos: libc::c_ulong) {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos, 0, 0, 0) };
}
