//! Readiness of descriptors: what sockets are made of, for descriptors of other kinds.
//!
//! [`AsyncFd`] watches whatever epoll does: pipes, eventfds, timerfds, devices, sockets of other crates.

mod async_fd;
mod guard;
mod interest;

pub use self::{
    async_fd::{AsyncFd, AsyncFdTryNewError, NotPollable},
    guard::{AsyncFdReadyGuard, TryIoError},
    interest::{Interest, Ready},
};
