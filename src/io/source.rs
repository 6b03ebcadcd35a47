//! What has a descriptor that a worker watches.

use super::Interest;

/// Something that [`select`](super::select) can wait for: the sockets of [`net`](crate::net), listeners and
/// halves of streams among them, and [`AsyncFd`](super::AsyncFd). There are no others.
pub trait Source: sealed::Sealed {}

pub(crate) mod sealed {
    use std::{
        io,
        os::fd::{AsFd, BorrowedFd},
    };

    use super::Interest;
    use crate::reactor::{Readiness, Registration};

    /// A descriptor, and what is known of it.
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

    /// `Sync`, so that a task that waits for references may move from worker to worker.
    pub trait Sealed: Sync {
        /// The descriptor, or an error if it is not watched for that.
        fn watched(&self, interest: Interest) -> io::Result<Watched<'_>>;
    }
}
