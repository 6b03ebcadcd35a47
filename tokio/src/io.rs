//! tokio's traits and tools for reading and writing, and readiness of descriptors by Tourbillon.

pub use real::io::*;
pub use tourbillon::io::{Interest, Ready};

/// Readiness of a file descriptor.
pub mod unix {
    pub use tourbillon::io::{AsyncFd, AsyncFdReadyGuard, AsyncFdReadyMutGuard, TryIoError};
}
