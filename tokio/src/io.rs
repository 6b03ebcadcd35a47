//! tokio's traits and tools for reading and writing, readiness of descriptors by Tourbillon, and
//! the standard streams.

pub use real::io::*;
pub use tourbillon::io::{Interest, Ready};

pub use crate::stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};

/// Readiness of a file descriptor.
pub mod unix {
    pub use tourbillon::io::{AsyncFd, AsyncFdReadyGuard, AsyncFdReadyMutGuard, TryIoError};
}
