//! The system calls for waiting, waking and reading clocks. They are those of libc, or those of a
//! simulated kernel with `--cfg tourbillon_sim`.

#[cfg(not(tourbillon_sim))]
pub(super) use libc::{
    clock_gettime, epoll_create1, epoll_ctl, epoll_wait, eventfd, poll, read, timerfd_create,
    timerfd_settime, write,
};

#[cfg(tourbillon_sim)]
pub(super) use super::sim::calls::{
    clock_gettime, epoll_create1, epoll_ctl, epoll_pwait2, epoll_wait, eventfd, poll, read,
    timerfd_create, timerfd_settime, write,
};

/// Calls `epoll_pwait2` without a signal mask. glibc added its wrapper later than Linux added the
/// call.
///
/// # Safety
///
/// `timeout` is valid, and `events` has room for `room` events.
#[cfg(not(tourbillon_sim))]
pub(super) unsafe fn epoll_pwait2(
    fd: libc::c_int,
    events: *mut libc::epoll_event,
    room: libc::c_int,
    timeout: *const libc::timespec,
) -> libc::c_int {
    // SAFETY: by the contract of this function.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            fd,
            events,
            room,
            timeout,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    count as libc::c_int
}
