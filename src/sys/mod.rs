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

use std::{cell::Cell, io, sync::Once};

/// Returns a random number. Not suitable for secrets.
pub(crate) fn random() -> u64 {
    #[cfg(tourbillon_sim)]
    return tourbillon_sync::sim::random();
    #[cfg(not(tourbillon_sim))]
    fastrand::u64(..)
}

thread_local! {
    /// The number of this thread, or zero if the system was not asked yet.
    static THREAD_ID: Cell<libc::pid_t> = const { Cell::new(0) };
}

/// Returns the system's number of the calling thread, as in `/proc/self/task`. A thread asks the
/// system once.
#[inline]
pub(crate) fn thread_id() -> libc::pid_t {
    match THREAD_ID.get() {
        0 => ask_thread_id(),
        id => id,
    }
}

#[cold]
fn ask_thread_id() -> libc::pid_t {
    /// Runs in the child of a `fork`, whose only thread has another number than its parent's.
    extern "C" fn forget() {
        THREAD_ID.set(0);
    }
    static FORGETS: Once = Once::new();
    FORGETS.call_once(|| {
        // If there is no memory for it, a child gives a number that no thread of it has.
        // SAFETY: `forget` only writes a thread-local number, which any thread may do at any time.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    });
    // SAFETY: the call has no preconditions.
    let id = unsafe { libc::gettid() };
    THREAD_ID.set(id);
    id
}

/// Converts the result of a libc call that returns −1 on failure.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_thread_is_its_own_also_in_the_child_of_a_fork() {
        // SAFETY: the call has no preconditions.
        let is_own = || thread_id() == unsafe { libc::gettid() };
        assert!(is_own() && is_own());
        assert!(
            std::thread::spawn(move || is_own() && is_own())
                .join()
                .unwrap()
        );
        // SAFETY: the child makes only system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: this ends the process and runs nothing else.
            unsafe { libc::_exit(if is_own() { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: the status is writable during the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
