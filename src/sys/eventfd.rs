//! The eventfd that wakes a worker from its epoll instance.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use super::check;

/// A non-blocking eventfd. It is watched edge-triggered and never read: each write is an event.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers. The result is checked before it becomes an `OwnedFd`.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: nothing else owns this new descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable, which is an event for all instances that watch it.
    pub(crate) fn write(&self) {
        let one = 1_u64;
        loop {
            // SAFETY: the buffer has the eight bytes that an eventfd reads.
            let written = unsafe {
                libc::write(
                    self.0.as_raw_fd(),
                    (&raw const one).cast(),
                    size_of::<u64>(),
                )
            };
            if written >= 0 {
                return;
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                // The counter is full after 2^64 − 2 writes. Reset it and try again.
                io::ErrorKind::WouldBlock => self.drain(),
                _ => return,
            }
        }
    }

    /// Resets the counter to zero.
    fn drain(&self) {
        let mut count = 0_u64;
        // SAFETY: the buffer has room for the eight bytes that an eventfd writes.
        unsafe {
            libc::read(
                self.0.as_raw_fd(),
                (&raw mut count).cast(),
                size_of::<u64>(),
            )
        };
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
