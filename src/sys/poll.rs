//! Asking whether descriptors are ready, without waiting.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::check;

/// A descriptor, what is asked of it, and the answer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Asked(libc::pollfd);

impl Asked {
    /// Nothing is asked, and the answer is that.
    pub(crate) const NOTHING: Self = Self(libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    });

    /// Asks for conditions, by the values that they have for epoll, which are those of poll. An
    /// error and the end are always answered.
    pub(crate) fn of(fd: BorrowedFd<'_>, conditions: u32) -> Self {
        Self(libc::pollfd {
            fd: fd.as_raw_fd(),
            events: conditions as libc::c_short,
            revents: 0,
        })
    }

    /// Those that hold.
    pub(crate) fn answer(self) -> u32 {
        u32::from(self.0.revents as libc::c_ushort)
    }
}

/// Answers all that is asked, as of now.
pub(crate) fn ask(asked: &mut [Asked]) -> io::Result<()> {
    loop {
        // SAFETY: an `Asked` is a pollfd, and there are so many of them to read and write.
        let result =
            check(unsafe { libc::poll(asked.as_mut_ptr().cast(), asked.len() as libc::nfds_t, 0) });
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}
