//! A check whether descriptors are ready, without waiting.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::check;

/// A descriptor, the conditions to check, and the result.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct PollEntry(libc::pollfd);

impl PollEntry {
    /// An entry without a descriptor. It has no result.
    pub(crate) const NOTHING: Self = Self(libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    });

    /// Creates an entry for `conditions`. epoll and poll have the same values for them. Errors and
    /// the end of a stream are always reported.
    pub(crate) fn of(fd: BorrowedFd<'_>, conditions: u32) -> Self {
        Self(libc::pollfd {
            fd: fd.as_raw_fd(),
            events: conditions as libc::c_short,
            revents: 0,
        })
    }

    /// Returns the conditions that hold.
    pub(crate) fn answer(self) -> u32 {
        u32::from(self.0.revents as libc::c_ushort)
    }
}

/// Fills in the result of each entry.
pub(crate) fn poll_now(entries: &mut [PollEntry]) -> io::Result<()> {
    loop {
        // SAFETY: `PollEntry` is a transparent `pollfd`, and the length is that of the slice.
        let result = check(unsafe {
            libc::poll(
                entries.as_mut_ptr().cast(),
                entries.len() as libc::nfds_t,
                0,
            )
        });
        match result {
            // A signal came first: ask again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}
