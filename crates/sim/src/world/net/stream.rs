//! Connections.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddrV4},
};

use super::{
    super::{State, decide::Class},
    Body, EndId, Errno, FAILED, Kind, Packet, READ_CLOSED, READABLE, WRITABLE,
};

/// How many bytes one packet takes at most.
const SEGMENT: usize = 16_384;
/// After which time a connect fails that nobody answers, in ns: as Linux does after six attempts.
const CONNECT: u64 = 127_000_000_000;

/// Why an end has no program any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The program has closed it.
    Closed,
    /// Its host has crashed.
    Lost,
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) local: SocketAddrV4,
    pub(crate) peer: SocketAddrV4,
    pub(super) other: EndId,
    /// The descriptor. `None` before it is accepted.
    pub(super) fd: Option<i32>,
    pub(super) is_open: bool,
    pub(super) incoming: VecDeque<u8>,
    /// How many bytes are under way to it.
    pub(super) under_way: usize,
    /// When the last packet to it arrives.
    pub(super) last_arrival: u64,
    /// How many packets were sent to it that come in order, and how many of them have come.
    sent: u64,
    came: u64,
    /// Those that have come before their turn.
    pub(super) early: BTreeMap<u64, Body>,
    /// The listener that is to have it.
    pub(super) listener: Option<i32>,
    /// No more data comes.
    pub(super) has_ended: bool,
    /// It sends no more data.
    pub(super) has_finished: bool,
    /// It reads no more.
    pub(super) reads_no_more: bool,
    /// A write found no room.
    pub(super) waits_for_room: bool,
    /// The connection has failed.
    pub(super) has_failed: bool,
    pub(super) gone: Option<Gone>,
    /// The error of the failure that nobody has been told yet.
    pub(crate) error: Option<Errno>,
}

impl End {
    pub(super) fn new(host: usize, local: SocketAddrV4, peer: SocketAddrV4, other: EndId) -> Self {
        Self {
            host,
            local,
            peer,
            other,
            fd: None,
            is_open: false,
            incoming: VecDeque::new(),
            under_way: 0,
            last_arrival: 0,
            sent: 0,
            came: 0,
            early: BTreeMap::new(),
            listener: None,
            has_ended: false,
            has_finished: false,
            reads_no_more: false,
            waits_for_room: false,
            has_failed: false,
            gone: None,
            error: None,
        }
    }

    /// Takes the packet whose turn it is, if it has come.
    pub(super) fn next_body(&mut self) -> Option<Body> {
        let body = self.early.remove(&self.came)?;
        self.came += 1;
        Some(body)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_open && !self.has_failed
    }

    pub(super) fn unread(&self) -> usize {
        self.incoming.len() + self.under_way
    }

    pub(super) fn conditions(&self, room: usize) -> u32 {
        if self.has_failed {
            return FAILED;
        }
        if !self.is_open {
            return 0;
        }
        let mut conditions = 0;
        let is_at_end = self.has_ended || self.reads_no_more;
        if !self.incoming.is_empty() || is_at_end {
            conditions |= READABLE;
        }
        if is_at_end {
            conditions |= READ_CLOSED;
        }
        if room > 0 || self.has_finished {
            conditions |= WRITABLE;
        }
        if is_at_end && self.has_finished {
            conditions |= libc::EPOLLHUP as u32;
        }
        conditions
    }
}

/// Returns an address to send to: no address stands for the host's own.
pub(super) fn own_if_none(to: SocketAddrV4) -> SocketAddrV4 {
    match to.ip().is_unspecified() {
        true => SocketAddrV4::new(Ipv4Addr::LOCALHOST, to.port()),
        false => to,
    }
}

impl State {
    /// Begins to connect a socket. The result comes later.
    pub(crate) fn connect(&mut self, fd: i32, to: SocketAddrV4) -> Result<(), Errno> {
        let host = self.host();
        let to = own_if_none(to);
        match self.socket(fd)?.kind {
            Kind::Idle => {}
            Kind::Connection(id) => {
                let is_open = self.net.end(id).is_some_and(|end| end.is_open);
                return Err(if is_open {
                    libc::EISCONN
                } else {
                    libc::EALREADY
                });
            }
            _ => return Err(libc::EINVAL),
        }
        let local = self.bind_to(fd, *to.ip())?;
        self.socket(fd)?.local = Some(local);
        // An address that no host has leads nowhere: the machine's own number stands for it.
        let target = self.host_of(host, *to.ip()).unwrap_or(0);
        let id = self.add_end(End::new(host, local, to, 0));
        self.net.ends.get_mut(&id).expect("it is new").fd = Some(fd);
        self.socket(fd)?.kind = Kind::Connection(id);
        self.note(|| format!("connects to {to}"));
        self.send(host, target, Body::Syn { from: id, to });
        let body = Body::GiveUp { end: id };
        let at = self.now + CONNECT;
        self.put(
            at,
            Packet {
                from: host,
                to: host,
                number: None,
                flow: 0,
                body,
            },
        );
        Err(libc::EINPROGRESS)
    }

    pub(super) fn add_end(&mut self, end: End) -> EndId {
        self.net.last_end += 1;
        self.net.ends.insert(self.net.last_end, end);
        self.net.last_end
    }

    /// Takes the next connection of a listener. Returns its end.
    pub(crate) fn accept(&mut self, fd: i32) -> Result<EndId, Errno> {
        match &mut self.socket(fd)?.kind {
            Kind::Listener(queue) => queue.pop_front().ok_or(libc::EAGAIN),
            _ => Err(libc::EINVAL),
        }
    }

    /// Gives an accepted end its descriptor.
    pub(crate) fn accepted(&mut self, id: EndId, fd: i32) {
        if let Some(end) = self.net.end_mut(id) {
            end.fd = Some(fd);
        }
    }

    /// Sends bytes. Returns how many.
    pub(crate) fn write_stream(&mut self, id: EndId, bytes: &[u8]) -> Result<usize, Errno> {
        let end = self.net.ends.get_mut(&id).ok_or(libc::EPIPE)?;
        if let Some(error) = end.error.take() {
            return Err(error);
        }
        if end.has_failed || end.has_finished {
            return Err(libc::EPIPE);
        }
        if !end.is_open {
            return Err(libc::EAGAIN);
        }
        let end = &self.net.ends[&id];
        let count = self.net.room(end).min(bytes.len());
        let (other, host) = (end.other, end.host);
        self.net
            .ends
            .get_mut(&id)
            .expect("it is there")
            .waits_for_room = count < bytes.len();
        if count == 0 && !bytes.is_empty() {
            return Err(libc::EAGAIN);
        }
        let resets = self.net.plan.resets;
        if self.chance_at(host, Class::Reset, resets) {
            self.decided(|| "has a connection that the network resets".into());
            self.fail_end(id, libc::ECONNRESET);
            self.fail_end(other, libc::ECONNRESET);
            return Err(libc::ECONNRESET);
        }
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            // Some writes arrive in two parts.
            let key = self.meet_at(host, Class::Part);
            let most = self.vary(key, rest.len(), |rng| match rng.u8(..4) {
                0 => rng.usize(1..=rest.len()),
                _ => rest.len(),
            });
            let (part, later) = rest.split_at(most.min(SEGMENT));
            rest = later;
            let bytes = part.to_vec();
            self.send_in_order(host, id, other, Body::Data { to: other, bytes });
        }
        self.note(|| format!("sends {count} bytes"));
        Ok(count)
    }

    /// Sends a packet of a connection, behind those before it.
    pub(super) fn send_in_order(&mut self, host: usize, from: EndId, to: EndId, body: Body) {
        let Some(peer) = self.net.ends.get(&from).map(|end| end.peer) else {
            return;
        };
        let count = match &body {
            Body::Data { bytes, .. } => bytes.len(),
            _ => 0,
        };
        let target = self.host_of(host, *peer.ip()).unwrap_or(0);
        let Some(receiver) = self.net.ends.get_mut(&to) else {
            return;
        };
        let (number, last) = (receiver.sent, receiver.last_arrival);
        receiver.sent += 1;
        receiver.under_way += count;
        let packet = Packet {
            from: host,
            to: target,
            number: Some(number),
            flow: 0,
            body,
        };
        let at = self.send_packet(packet, last);
        if let Some(receiver) = self.net.ends.get_mut(&to) {
            receiver.last_arrival = at;
        }
    }

    /// Receives bytes. Returns how many; none at the end of the stream.
    pub(crate) fn read_stream(
        &mut self,
        id: EndId,
        buffer: &mut [u8],
        peeks: bool,
    ) -> Result<usize, Errno> {
        let end = self.net.ends.get_mut(&id).ok_or(libc::ECONNRESET)?;
        // As in Linux: data that has come is read also after a failure, and the end of the stream
        // comes before an error.
        if end.incoming.is_empty() && !buffer.is_empty() {
            if end.has_ended {
                return Ok(0);
            }
            if let Some(error) = end.error.take() {
                return Err(error);
            }
            return match (end.reads_no_more || end.has_failed, end.is_open) {
                (true, _) => Ok(0),
                (false, true) => Err(libc::EAGAIN),
                (false, false) => Err(libc::ENOTCONN),
            };
        }
        let count = end.incoming.len().min(buffer.len());
        for (place, byte) in buffer[..count].iter_mut().zip(&end.incoming) {
            *place = *byte;
        }
        if !peeks && count > 0 {
            end.incoming.drain(..count);
            let (host, other) = (end.host, end.other);
            // As in the kernel: room is an event only for a writer that found none.
            let waits = self.net.ends.get_mut(&other);
            if waits.is_some_and(|it| std::mem::take(&mut it.waits_for_room)) {
                self.send_in_order(host, id, other, Body::Room { to: other });
            }
        }
        self.note(|| format!("receives {count} bytes"));
        Ok(count)
    }

    /// Ends one or both directions.
    pub(crate) fn shut_down(&mut self, id: EndId, reads: bool, writes: bool) -> Result<(), Errno> {
        let end = self.net.ends.get_mut(&id).ok_or(libc::ENOTCONN)?;
        if !end.is_open || end.has_failed {
            return Err(libc::ENOTCONN);
        }
        end.reads_no_more |= reads;
        let (host, other, fd) = (end.host, end.other, end.fd);
        if writes && !std::mem::replace(&mut end.has_finished, true) {
            self.send_in_order(host, id, other, Body::Fin { to: other });
        }
        // What waits at this end sees it at once.
        if let Some(fd) = fd {
            self.signal(fd);
        }
        Ok(())
    }

    /// Closes the socket of an end. `resets`: the peer is not to get what is under way.
    pub(crate) fn close_end(&mut self, id: EndId, resets: bool) {
        let Some(end) = self.net.ends.get_mut(&id) else {
            return;
        };
        let has_unread = !std::mem::take(&mut end.incoming).is_empty();
        (end.gone, end.fd) = (Some(Gone::Closed), None);
        let (host, other, is_open) = (end.host, end.other, end.is_open && !end.has_failed);
        let body = match resets || has_unread {
            true => Some(Body::Reset { to: other }),
            false => (!end.has_finished).then_some(Body::Fin { to: other }),
        };
        if let Some(body) = body.filter(|_| is_open) {
            self.send_in_order(host, id, other, body);
        }
        // Its peer may still send, and is answered then.
        if self
            .net
            .end(other)
            .is_some_and(|other| other.gone.is_some())
        {
            self.net.ends.remove(&id);
            self.net.ends.remove(&other);
        }
    }

    /// Has the connection of an end fail.
    pub(super) fn fail_end(&mut self, id: EndId, error: Errno) {
        let Some(end) = self.net.ends.get_mut(&id) else {
            return;
        };
        if end.gone.is_some() || std::mem::replace(&mut end.has_failed, true) {
            return;
        }
        // As in Linux: after the end of the stream, the failure is one of writes.
        let is_late = end.has_ended && error == libc::ECONNRESET;
        end.error = Some(if is_late { libc::EPIPE } else { error });
        if let Some(fd) = end.fd {
            self.signal(fd);
        }
    }

    /// Makes the end of a listener's host for a request. Returns it.
    pub(super) fn answer(
        &mut self,
        host: usize,
        from: EndId,
        to: SocketAddrV4,
        listener: i32,
    ) -> Option<EndId> {
        let peer = self.net.ends.get(&from)?.local;
        let mut end = End::new(host, to, peer, from);
        end.listener = Some(listener);
        let id = self.add_end(end);
        self.net.ends.get_mut(&from)?.other = id;
        Some(id)
    }
}
