//! The bytes that a client has acknowledged.

use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Counts the bytes that the client of a TCP connection has acknowledged: how much of what was sent
/// has reached its system. Another object owns the socket.
///
/// A [`Listener`](crate::Listener) passes it to the server.
///
/// It identifies the socket by its descriptor and its cookie. If the owner closes the descriptor,
/// another file may get its number, but no other socket has the cookie.
#[derive(Clone, Copy, Debug)]
pub struct AckCounter(Option<Counter>);

#[derive(Clone, Copy, Debug)]
struct Counter {
    fd: RawFd,
    cookie: u64,
}

impl AckCounter {
    /// Returns the counter of a TCP socket. It is [unknown](AckCounter::unknown) if the system has
    /// no socket cookies (before Linux 4.12).
    pub fn of(socket: &impl AsFd) -> Self {
        let fd = socket.as_fd().as_raw_fd();
        Self(cookie(fd).map(|cookie| Counter { fd, cookie }))
    }

    /// Returns a counter without a count, for a stream that is not TCP.
    pub fn unknown() -> Self {
        Self(None)
    }

    /// Returns the number of bytes acknowledged since the connection was made. Returns `None` if it
    /// is unknown, if the socket is closed, or if it is not a TCP socket.
    pub fn bytes(&self) -> Option<u64> {
        /// The offset of `tcpi_bytes_acked` in the kernel's `struct tcp_info` (since Linux 4.1).
        /// The kernel only appends to this struct. libc has the field for some targets only.
        const ACKED: usize = 120;
        let Counter { fd, cookie: own } = self.0?;
        let mut info = [0_u8; ACKED + 8];
        let len = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        // The connection may have been closed, and its descriptor may be another file's by now. No
        // cookie comes twice, so if it is this one now, it was this one before.
        if cookie(fd) != Some(own) {
            return None;
        }
        let acked = info[ACKED..].try_into().ok()?;
        // An older kernel returns a shorter structure, without this count.
        (len == info.len()).then(|| u64::from_ne_bytes(acked))
    }
}

/// Returns a number that no other socket has until the system restarts.
fn cookie(fd: RawFd) -> Option<u64> {
    let mut cookie = [0; 8];
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie)?;
    Some(u64::from_ne_bytes(cookie))
}

/// Reads a socket option and returns its length. Returns `None` if the descriptor is closed or has
/// no such option.
fn option(fd: RawFd, level: i32, name: i32, value: &mut [u8]) -> Option<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).ok()?;
    // SAFETY: `value` has room for the `len` bytes that the kernel may write. Both are valid during
    // the call, which changes no state of the file.
    let read = unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) };
    (read == 0).then_some(len as usize)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::unix::net::UnixStream,
        time::Duration,
    };

    use super::*;

    #[test]
    fn acknowledged_bytes_are_counted_until_the_socket_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let taken = AckCounter::of(&sender);
        let before = taken.bytes().unwrap();
        sender.write_all(&[7; 1000]).unwrap();
        receiver.read_exact(&mut [0; 1000]).unwrap();
        // The acknowledgement may be delayed.
        let acknowledged = || taken.bytes().unwrap() - before == 1000;
        while !acknowledged() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(sender);
        assert_eq!(taken.bytes(), None);
        // Other files may get the number of the closed descriptor.
        let others: Vec<_> = (0..8).map(|_| listener.try_clone().unwrap()).collect();
        assert_eq!(taken.bytes(), None);
        drop(others);
    }

    #[test]
    fn other_sockets_have_no_count() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        assert_eq!(AckCounter::of(&socket).bytes(), None);
        assert_eq!(AckCounter::unknown().bytes(), None);
    }
}
