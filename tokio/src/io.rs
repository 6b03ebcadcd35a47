//! tokio's traits and tools for reading and writing, and readiness of descriptors by Tourbillon.

pub use real::io::*;
pub use tourbillon::io::{Interest, Ready};

/// Readiness of a file descriptor.
pub mod unix {
    pub use tourbillon::io::{AsyncFd, AsyncFdReadyGuard, AsyncFdReadyMutGuard, TryIoError};
}

#[cfg(feature = "io-std")]
pub use self::standard::{Stderr, Stdin, Stdout, stderr, stdin, stdout};

/// The standard streams. Their operations block threads of the crate `blocking`.
#[cfg(feature = "io-std")]
mod standard {
    use std::{
        io::{self, IoSlice},
        pin::Pin,
        task::{Context, Poll, ready},
    };

    use blocking::Unblock;

    /// The standard input. Bytes that were read ahead are lost when it is dropped.
    #[derive(Debug)]
    pub struct Stdin(Unblock<io::Stdin>);

    /// The standard output. Bytes are in a buffer until `flush` returns.
    #[derive(Debug)]
    pub struct Stdout(Unblock<io::Stdout>);

    /// The standard error output. Bytes are in a buffer until `flush` returns.
    #[derive(Debug)]
    pub struct Stderr(Unblock<io::Stderr>);

    /// Returns the standard input.
    pub fn stdin() -> Stdin {
        Stdin(Unblock::new(io::stdin()))
    }

    /// Returns the standard output.
    pub fn stdout() -> Stdout {
        Stdout(Unblock::new(io::stdout()))
    }

    /// Returns the standard error output.
    pub fn stderr() -> Stderr {
        Stderr(Unblock::new(io::stderr()))
    }

    crate::net::stream::reads!(Stdin);
    crate::net::stream::writes!(Stdout, Stderr);
}
