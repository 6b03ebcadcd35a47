//! The eventfd by which a worker is woken from its epoll instance.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use super::{check, kernel};

/// A non-blocking eventfd. Watched edge-triggered, it need not be read: each write is an edge.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is checked before it is owned.
        let fd = check(unsafe { kernel::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable: an edge for whoever watches it.
    pub(crate) fn write(&self) {
        let one = 1_u64;
        loop {
            // SAFETY: eight readable bytes, as an eventfd wants them.
            let written = unsafe {
                kernel::write(
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
                // The counter is full, which takes 2^64 − 2 writes unread: start again from zero.
                io::ErrorKind::WouldBlock => self.drain(),
                _ => return,
            }
        }
    }

    /// Takes the counter back to zero.
    fn drain(&self) {
        let mut count = 0_u64;
        // SAFETY: eight writable bytes, as an eventfd wants them.
        unsafe {
            kernel::read(
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
