//! The system calls for waiting, waking and reading clocks. They are those of libc, or those of a
//! simulated kernel with `--cfg tourbillon_sim`.

#[cfg(not(tourbillon_sim))]
pub(super) use libc::{
    clock_gettime, epoll_create1, epoll_ctl, epoll_wait, eventfd, poll, read, timerfd_create,
    timerfd_settime, write,
};

#[cfg(tourbillon_sim)]
pub(super) use super::sim::calls::{
    clock_gettime, epoll_create1, epoll_ctl, epoll_wait, eventfd, poll, read, timerfd_create,
    timerfd_settime, write,
};
