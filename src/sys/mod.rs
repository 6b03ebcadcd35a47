//! The interface to the operating system. No other module of the library calls functions of libc.

pub(crate) mod clock;
pub(crate) mod cpu;
mod deadline;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod memory;
pub(crate) mod poll;
pub(crate) mod quota;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod sync;
pub(crate) mod ticks;
pub(crate) mod timerfd;
pub(crate) mod waits;

use std::io;

/// Returns a random number. Not suitable for secrets.
pub(crate) fn random() -> u64 {
    #[cfg(tourbillon_sim)]
    return tourbillon_sync::sim::random();
    #[cfg(not(tourbillon_sim))]
    fastrand::u64(..)
}

/// Returns the system's number of the calling thread, as in `/proc/self/task`.
pub(crate) fn thread_id() -> libc::pid_t {
    // SAFETY: the call has no preconditions.
    unsafe { libc::gettid() }
}

/// Converts the result of a libc call that returns −1 on failure.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
