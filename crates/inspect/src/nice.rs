//! How much the inspector gives way to other threads.

/// Gives way to all other threads: raises the niceness of the calling thread, and of those it
/// starts later, by 10. Also removes an inherited real-time priority, under which niceness has no
/// effect. This needs no privilege. Some sandboxes refuse it, which only costs speed of other
/// threads.
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
