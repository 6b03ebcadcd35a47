//! Types that `select` can wait for.

use super::Interest;

/// A type that [`select`](super::select) can wait for.
///
/// These are the sockets of [`net`](crate::net), including listeners and stream halves, and
/// [`AsyncFd`](super::AsyncFd). Other crates cannot implement this trait.
pub trait Source: sealed::Sealed {}

pub(crate) mod sealed {
    use std::{
        io,
        os::fd::{AsFd, BorrowedFd},
    };

    use super::Interest;
    use crate::{engine::registration::Registration, reactor::Readiness};

    /// A descriptor and its readiness.
    #[expect(missing_debug_implementations, reason = "nobody outside can name it")]
    pub struct Watched<'a> {
        pub(crate) fd: BorrowedFd<'a>,
        pub(crate) readiness: &'a Readiness,
    }

    impl<'a, T: AsFd> From<&'a Registration<T>> for Watched<'a> {
        fn from(registration: &'a Registration<T>) -> Self {
            Self {
                fd: registration.get().as_fd(),
                readiness: registration.readiness(),
            }
        }
    }

    /// The private part of [`Source`](super::Source). `Sync` lets a task that waits for references
    /// move between workers.
    pub trait Sealed: Sync {
        /// Returns the descriptor and its readiness, or an error if `interest` is not watched.
        fn watched(&self, interest: Interest) -> io::Result<Watched<'_>>;
    }
}
