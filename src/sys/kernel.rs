//! The system calls by which the runtime waits, is woken, and reads clocks: libc's, or, built with
//! `--cfg tourbillon_sim`, those of a simulated kernel.

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

/// `epoll_pwait2` without a mask of signals. glibc's wrapper is younger than the system call.
///
/// # Safety
///
/// `timeout` is valid, and so is `events`, for as many events as `room` says.
#[cfg(not(tourbillon_sim))]
pub(super) unsafe fn epoll_pwait2(
    fd: libc::c_int,
    events: *mut libc::epoll_event,
    room: libc::c_int,
    timeout: *const libc::timespec,
) -> libc::c_int {
    // SAFETY: the caller says so.
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
