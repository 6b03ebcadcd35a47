//! Datagrams.

use std::{collections::VecDeque, net::SocketAddrV4};

use super::{super::State, Body, Errno, Kind, READABLE, WRITABLE};

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
        let has_room = waiting + bytes.len() <= ROOM;
        if has_room && self.peer.is_none_or(|peer| peer == from) {
            self.queue.push_back((from, bytes));
            return true;
        }
        false
    }
}

impl State {
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
        let to = to.or(datagrams.peer).ok_or(libc::EDESTADDRREQ)?;
        if bytes.len() > LONGEST {
            return Err(libc::EMSGSIZE);
        }
        let from = self.bind_to(fd, *to.ip())?;
        let host = self.host();
        let target = self.host_of(host, *to.ip()).unwrap_or(0);
        let count = bytes.len();
        let bytes = bytes.to_vec();
        self.note(|| format!("sends a datagram of {count} bytes to {to}"));
        self.send(host, target, Body::Datagram { from, to, bytes }, 0);
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
