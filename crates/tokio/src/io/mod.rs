//! tokio's traits and tools for reading and writing, readiness of descriptors by Tourbillon, and
//! the standard streams.

mod async_fd;
mod stdio;

pub use real::io::*;
pub use tourbillon::io::{Interest, Ready};

pub use self::stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};

/// Readiness of a file descriptor.
pub mod unix {
    pub use tourbillon::io::TryIoError;

    #[expect(deprecated, reason = "tokio has this name, too")]
    pub use super::async_fd::AsyncFdTryNewError;
    pub use super::async_fd::{
        AsyncFd, AsyncFdReadyGuard, AsyncFdReadyMutGuard, AsyncFdRegisterError,
    };
}
