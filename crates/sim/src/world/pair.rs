//! Simulated connections: pairs of stream sockets, whose events the simulated epoll reports.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::{
    kernel::{Object, READABLE},
    with,
};
use crate::calls;

/// One end of a connection, as the simulated kernel has it. Data are counted, and not stored.
#[derive(Default)]
pub(crate) struct Stream {
    /// The descriptor of the other end. `None` after that end was closed.
    pub(crate) peer: Option<i32>,
    /// How many bytes a read finds.
    queued: usize,
    /// How many bytes may be queued.
    capacity: usize,
    /// A write at this end found no room. So the read that makes room is an event here.
    waits_for_room: bool,
}

impl Stream {
    pub(crate) fn has_room(&self) -> bool {
        self.queued < self.capacity
    }

    /// Returns the present conditions, as in `epoll_event`. `has_room` tells whether the other end
    /// has room for data.
    pub(crate) fn conditions(&self, has_room: bool) -> u32 {
        let is_closed = self.peer.is_none();
        let mut conditions = 0;
        if self.queued > 0 || is_closed {
            conditions |= READABLE;
        }
        if has_room {
            conditions |= libc::EPOLLOUT as u32;
        }
        if is_closed {
            conditions |= (libc::EPOLLRDHUP | libc::EPOLLHUP) as u32;
        }
        conditions
    }
}

/// One end of a simulated connection. Reads and writes never block.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Creates a connection, of which each end holds at most `capacity` unread bytes.
    ///
    /// # Errors
    ///
    /// The system has no descriptor.
    pub fn pair(capacity: usize) -> io::Result<(Self, Self)> {
        let open = || {
            let object = Object::Stream(Stream::default());
            let fd = with(|world| calls::open(world, object)).unwrap_or(-1);
            // SAFETY: nothing else owns this new descriptor.
            (fd >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(fd) }))
        };
        let (Some(one), Some(other)) = (open(), open()) else {
            return Err(io::Error::last_os_error());
        };
        with(|world| {
            let mut state = world.lock();
            for (end, peer) in [(&one, &other), (&other, &one)] {
                let stream = state.kernel.stream_mut(end.fd());
                (stream.peer, stream.capacity) = (Some(peer.fd()), capacity);
            }
        });
        Ok((one, other))
    }

    fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Reads at most `most` bytes. Returns zero at the end of the stream.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if there are no data.
    pub fn read(&self, most: usize) -> io::Result<usize> {
        let done = with(|world| {
            world.point();
            let mut state = world.lock();
            let stream = state.kernel.stream_mut(self.fd());
            let count = stream.queued.min(most);
            let peer = stream.peer;
            if count == 0 {
                return peer.map_or(Ok(0), |_| Err(io::ErrorKind::WouldBlock.into()));
            }
            stream.queued -= count;
            // As in the kernel: room is an event only for a writer that found none.
            if let Some(peer) = peer {
                if std::mem::take(&mut state.kernel.stream_mut(peer).waits_for_room) {
                    state.signal(peer);
                }
            }
            state.note(|| format!("reads {count} bytes from {}", self.fd()));
            Ok(count)
        });
        done.expect("only threads of the world use its sockets")
    }

    /// Writes at most `count` bytes, and returns how many.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if there is no room, and `BrokenPipe` if the other end is closed.
    pub fn write(&self, count: usize) -> io::Result<usize> {
        let done = with(|world| {
            world.point();
            let mut state = world.lock();
            let Some(peer) = state.kernel.stream_mut(self.fd()).peer else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            let other = state.kernel.stream_mut(peer);
            let taken = count.min(other.capacity - other.queued);
            other.queued += taken;
            if taken < count {
                state.kernel.stream_mut(self.fd()).waits_for_room = true;
            }
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            state.note(|| format!("writes {taken} bytes to {}", self.fd()));
            state.signal(peer);
            Ok(taken)
        });
        done.expect("only threads of the world use its sockets")
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
