//! Datagrams.

use std::{collections::VecDeque, net::SocketAddrV4};

use super::{super::State, Body, Errno, Kind, READABLE, WRITABLE, stream::own_if_none};

/// How many bytes wait for a reader at most. What comes then is lost.
const ROOM: usize = 212_992;
/// How many bytes a datagram has at most.
const LONGEST: usize = 65_507;

/// A UDP socket.
#[derive(Default)]
pub(crate) struct Datagrams {
    /// The only address that it talks to.
    pub(crate) peer: Option<SocketAddrV4>,
    pub(super) queue: VecDeque<(SocketAddrV4, Vec<u8>)>,
}

impl Datagrams {
    pub(super) fn conditions(&self) -> u32 {
        match self.queue.is_empty() {
            true => WRITABLE,
            false => WRITABLE | READABLE,
        }
    }

    pub(super) fn push(&mut self, from: SocketAddrV4, bytes: Vec<u8>) -> bool {
        let waiting: usize = self.queue.iter().map(|(_, bytes)| bytes.len()).sum();
        if waiting + bytes.len() <= ROOM {
            self.queue.push_back((from, bytes));
            return true;
        }
        false
    }
}

impl State {
    /// Sets the only address that a socket talks to, and the address by which it does.
    pub(crate) fn connect_datagrams(&mut self, fd: i32, to: SocketAddrV4) -> Result<(), Errno> {
        let to = own_if_none(to);
        let local = self.bind_to(fd, *to.ip())?;
        let socket = self.socket(fd)?;
        socket.local = Some(local);
        if let Kind::Udp(datagrams) = &mut socket.kind {
            datagrams.peer = Some(to);
        }
        Ok(())
    }

    /// Sends a datagram, to the peer of the socket if no address is given.
    pub(crate) fn send_datagram(
        &mut self,
        fd: i32,
        to: Option<SocketAddrV4>,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let Kind::Udp(datagrams) = &self.socket(fd)?.kind else {
            return Err(libc::EINVAL);
        };
        let to = own_if_none(to.or(datagrams.peer).ok_or(libc::EDESTADDRREQ)?);
        if bytes.len() > LONGEST {
            return Err(libc::EMSGSIZE);
        }
        let from = self.bind_to(fd, *to.ip())?;
        let host = self.host();
        let target = self.host_of(host, *to.ip()).unwrap_or(0);
        let count = bytes.len();
        let bytes = bytes.to_vec();
        self.note(|| format!("sends a datagram of {count} bytes to {to}"));
        self.send(host, target, Body::Datagram { from, to, bytes });
        Ok(count)
    }

    /// Receives a datagram. Returns its sender and its length, of which the buffer has a part.
    pub(crate) fn receive_datagram(
        &mut self,
        fd: i32,
        buffer: &mut [u8],
        peeks: bool,
    ) -> Result<(SocketAddrV4, usize), Errno> {
        let Kind::Udp(datagrams) = &mut self.socket(fd)?.kind else {
            return Err(libc::EINVAL);
        };
        let (from, bytes) = datagrams.queue.front().ok_or(libc::EAGAIN)?;
        let (from, len) = (*from, bytes.len());
        let count = len.min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        if !peeks {
            datagrams.queue.pop_front();
        }
        Ok((from, count))
    }
}
