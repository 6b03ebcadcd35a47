//! Readiness of file descriptors other than our own sockets.
//!
//! [`AsyncFd`] wraps any descriptor that epoll supports: pipes, eventfds, timerfds, devices,
//! sockets of other crates. [`select`] waits for any of several descriptors with one timeout.

pub(crate) mod async_fd;
pub(crate) mod guard;
pub(crate) mod interest;
pub(crate) mod select;
pub(crate) mod source;

pub use self::{
    async_fd::{AsyncFd, AsyncFdRegisterError, AsyncFdTryNewError, NotPollable},
    guard::{AsyncFdReadyGuard, AsyncFdReadyMutGuard, TryIoError},
    interest::{Interest, Ready},
    select::{Select, select},
    source::Source,
};
