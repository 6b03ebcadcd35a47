//! The sockets of the hosts, and the network between them.
//!
//! An *end* is one side of a connection. It is known by its number, since packets on their way to
//! it may outlive its descriptor.

mod deliver;
mod stream;
mod udp;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{Ipv4Addr, SocketAddrV4},
};

use super::{
    State,
    decide::Class,
    kernel::{Object, READABLE},
    story::{Millis, Part},
};
use crate::network::Network;

use self::stream::Gone;
pub(crate) use self::{stream::End, udp::Datagrams};

const WRITABLE: u32 = libc::EPOLLOUT as u32;
const READ_CLOSED: u32 = libc::EPOLLRDHUP as u32;
const FAILED: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32 | READABLE | WRITABLE | READ_CLOSED;

/// The number of an end.
pub(crate) type EndId = u64;
/// The number of an error of the system.
pub(crate) type Errno = i32;

/// The first port that a socket gets that asks for none.
const FIRST_PORT: u16 = 49_152;

/// A socket, by its descriptor.
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    /// Whether its calls wait.
    pub(crate) is_blocking: bool,
    pub(crate) local: Option<SocketAddrV4>,
    /// The options that were set, by level and name.
    pub(crate) options: BTreeMap<(i32, i32), Vec<u8>>,
}

pub(crate) enum Kind {
    /// A TCP socket that does nothing yet.
    Idle,
    /// The ends of connections that wait to be accepted.
    Listener(VecDeque<EndId>),
    Connection(EndId),
    Udp(Datagrams),
}

/// What is under way.
#[derive(Debug)]
pub(super) enum Body {
    /// Asks a listener for a connection.
    Syn {
        from: EndId,
        to: SocketAddrV4,
    },
    /// The listener's host agrees.
    Agreed {
        to: EndId,
    },
    /// The client has read that. From here on the connection can be accepted.
    Opened {
        to: EndId,
    },
    /// Nobody listens.
    Refused {
        to: EndId,
    },
    Data {
        to: EndId,
        bytes: Vec<u8>,
    },
    /// No more data comes.
    Fin {
        to: EndId,
    },
    Reset {
        to: EndId,
    },
    /// The reader has made room.
    Room {
        to: EndId,
    },
    /// The time of a connect is over.
    GiveUp {
        end: EndId,
    },
    Datagram {
        from: SocketAddrV4,
        to: SocketAddrV4,
        bytes: Vec<u8>,
    },
}

#[derive(Debug)]
pub(super) struct Packet {
    from: usize,
    to: usize,
    /// Its place among the packets to an end, which come in order.
    number: Option<u64>,
    /// Its number among all packets.
    flow: u64,
    body: Body,
}

/// The network.
#[derive(Default)]
pub(crate) struct Net {
    plan: Network,
    ends: BTreeMap<EndId, End>,
    last_end: EndId,
    /// The packets under way, by the moment at which they arrive, and by number.
    packets: BTreeMap<(u64, u64), Packet>,
    last_packet: u64,
    last_flow: u64,
    /// The packets that wait for a link, or for a host that is down.
    held: Vec<Packet>,
    /// The directions that are cut: from a host, to a host.
    cut: BTreeSet<(usize, usize)>,
    last_port: BTreeMap<usize, u16>,
}

/// Returns the address of a host.
pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8)
}

impl Net {
    pub(crate) fn set(&mut self, plan: &Network) {
        self.plan = plan.clone();
    }

    /// Returns when the next packet arrives.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.packets.keys().next().map(|(at, _)| *at)
    }

    pub(crate) fn end(&self, id: EndId) -> Option<&End> {
        self.ends.get(&id)
    }

    pub(crate) fn end_mut(&mut self, id: EndId) -> Option<&mut End> {
        self.ends.get_mut(&id)
    }

    /// A descriptor is closed. If it was that of a listener, it gets no connection from here on, nor
    /// does another one of the same number.
    pub(super) fn forget_listener(&mut self, fd: i32) {
        for end in self.ends.values_mut() {
            if end.listener == Some(fd) {
                end.listener = None;
            }
        }
    }

    /// Returns how many bytes an end may send now.
    fn room(&self, end: &End) -> usize {
        match self.ends.get(&end.other) {
            Some(other) => self.plan.window.saturating_sub(other.unread()),
            // The connection is not open yet.
            None => self.plan.window,
        }
    }

    /// Returns the present conditions of a socket, as in `epoll_event`.
    pub(crate) fn conditions(&self, socket: &Socket) -> u32 {
        match &socket.kind {
            Kind::Idle => WRITABLE | libc::EPOLLHUP as u32,
            Kind::Listener(queue) if queue.is_empty() => 0,
            Kind::Listener(_) => READABLE,
            Kind::Udp(datagrams) => datagrams.conditions(),
            Kind::Connection(id) => match self.ends.get(id) {
                Some(end) => end.conditions(self.room(end)),
                None => FAILED,
            },
        }
    }
}

impl State {
    pub(crate) fn socket(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        match self.kernel.get(fd) {
            Some(Object::Socket(socket)) => Ok(socket),
            Some(_) => Err(libc::ENOTSOCK),
            None => Err(libc::EBADF),
        }
    }

    /// Returns the host that has an address, from the view of `own`.
    pub(crate) fn host_of(&self, own: usize, ip: Ipv4Addr) -> Option<usize> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(own);
        }
        (1..self.hosts.len()).find(|&host| address(host) == ip)
    }

    /// Returns a port of a host that no socket has.
    fn free_port(&mut self, host: usize) -> u16 {
        loop {
            let last = self.net.last_port.entry(host).or_insert(FIRST_PORT - 1);
            *last = last.checked_add(1).unwrap_or(FIRST_PORT);
            let port = *last;
            let is_taken = self.kernel.sockets().any(|(_, of, socket)| {
                of == host && socket.local.is_some_and(|local| local.port() == port)
            });
            if !is_taken {
                return port;
            }
        }
    }

    /// Binds a socket to an address.
    pub(crate) fn bind(&mut self, fd: i32, wanted: SocketAddrV4) -> Result<(), Errno> {
        let host = self.host();
        let socket = self.socket(fd)?;
        if socket.local.is_some() {
            return Err(libc::EINVAL);
        }
        let (is_udp, shares) = (matches!(socket.kind, Kind::Udp(_)), socket.shares_port());
        if self.host_of(host, *wanted.ip()) != Some(host) {
            return Err(libc::EADDRNOTAVAIL);
        }
        let port = match wanted.port() {
            0 => self.free_port(host),
            port => port,
        };
        let is_taken = self.kernel.sockets().any(|(_, of, other)| {
            // A connection does not keep its listener from starting again.
            of == host
                && matches!(other.kind, Kind::Udp(_)) == is_udp
                && !matches!(other.kind, Kind::Connection(_))
                && !(shares && other.shares_port())
                && other.local.is_some_and(|local| {
                    local.port() == port
                        && (local.ip() == wanted.ip()
                            || local.ip().is_unspecified()
                            || wanted.ip().is_unspecified())
                })
        });
        if is_taken {
            return Err(libc::EADDRINUSE);
        }
        self.socket(fd)?.local = Some(SocketAddrV4::new(*wanted.ip(), port));
        Ok(())
    }

    /// Gives a socket a port, if it has none. Returns the address by which it talks to another one.
    fn bind_to(&mut self, fd: i32, peer: Ipv4Addr) -> Result<SocketAddrV4, Errno> {
        let host = self.host();
        let known = self.socket(fd)?.local;
        let known =
            known.unwrap_or_else(|| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.free_port(host)));
        self.socket(fd)?.local = Some(known);
        let ip = match known.ip() {
            ip if !ip.is_unspecified() => *ip,
            _ if peer.is_loopback() => Ipv4Addr::LOCALHOST,
            _ => address(host),
        };
        Ok(SocketAddrV4::new(ip, known.port()))
    }

    /// Sends a packet from one host to another, by itself.
    fn send(&mut self, from: usize, to: usize, body: Body) {
        let packet = Packet {
            from,
            to,
            number: None,
            flow: 0,
            body,
        };
        self.send_packet(packet, 0);
    }

    /// Sends a packet, which arrives at `not_before` at the earliest. Returns when it does.
    fn send_packet(&mut self, mut packet: Packet, not_before: u64) -> u64 {
        self.net.last_flow += 1;
        packet.flow = self.net.last_flow;
        if self.draws {
            let to = &self.hosts[packet.to].name;
            let what = format!("{} to {to}", packet.body.name());
            self.draw_packet(packet.flow, packet.from, &what, false);
        }
        let Packet {
            from, to, ref body, ..
        } = packet;
        let plan = &self.net.plan;
        let (range, loss) = match from == to {
            true => (5_000..30_000, 0.0),
            false => (plan.delay.clone(), plan.loss),
        };
        let key = self.meet_at(from, Class::Delay);
        let usual = range.start;
        let delay = self.vary(key, usual, |rng| rng.u64(range));
        if delay != usual {
            self.tell(Part::Decided, || {
                let (from, to) = (&self.hosts[from].name, &self.hosts[to].name);
                let (name, delay) = (body.name(), Millis(delay));
                format!("{name} from {from} to {to} is under way for {delay}")
            });
        }
        let mut at = self.now.saturating_add(delay);
        if self.chance_at(from, Class::Loss, loss) {
            self.tell(Part::Decided, || {
                let (from, to) = (&self.hosts[from].name, &self.hosts[to].name);
                format!("the network loses {} from {from} to {to}", body.name())
            });
            if matches!(body, Body::Datagram { .. }) {
                return at;
            }
            // It is sent again.
            at = at.saturating_add(200_000_000);
        }
        let at = at.max(not_before);
        self.put(at, packet);
        at
    }

    /// Returns whether something happens to a host that has a chance from 0 to 1.
    pub(crate) fn chance_at(&mut self, host: usize, class: Class, chance: f64) -> bool {
        if chance <= 0.0 {
            return false;
        }
        let key = self.meet_at(host, class);
        self.vary(key, false, |rng| rng.f64() < chance)
    }

    fn put(&mut self, at: u64, packet: Packet) {
        self.net.last_packet += 1;
        self.net.packets.insert((at, self.net.last_packet), packet);
        self.next_due = self.next_due.min(at);
    }

    /// Cuts one direction, or joins it again.
    pub(crate) fn set_cut(&mut self, from: usize, to: usize, is_cut: bool) {
        self.tell(Part::Asked, || {
            let (from, to) = (&self.hosts[from].name, &self.hosts[to].name);
            let what = ["joined", "cut"][usize::from(is_cut)];
            format!("the link from {from} to {to} is {what}")
        });
        if is_cut {
            self.net.cut.insert((from, to));
        } else {
            self.net.cut.remove(&(from, to));
            self.release();
        }
    }

    /// Joins all links.
    pub(crate) fn repair(&mut self) {
        self.tell(Part::Asked, || "all links are joined".into());
        self.net.cut.clear();
        self.release();
    }

    /// Sends on what waited for a link or a host.
    pub(crate) fn release(&mut self) {
        let mut last = self.now;
        for packet in std::mem::take(&mut self.net.held) {
            // Not all at once. Those to an end have numbers, by which they come in order.
            let key = self.meet_at(packet.from, Class::Delay);
            last += self.vary(key, 1_000, |rng| rng.u64(1_000..200_000));
            self.put(last, packet);
        }
    }

    /// Resets the connections between two hosts.
    pub(crate) fn reset_between(&mut self, one: usize, other: usize) {
        self.tell(Part::Asked, || {
            let (one, other) = (&self.hosts[one].name, &self.hosts[other].name);
            format!("the connections between {one} and {other} are reset")
        });
        let chosen = self.net.ends.iter().filter(|(_, end)| {
            let peer = self.host_of(end.host, *end.peer.ip());
            [(one, Some(other)), (other, Some(one))].contains(&(end.host, peer))
        });
        let chosen: Vec<EndId> = chosen.map(|(id, _)| *id).collect();
        for id in chosen {
            self.fail_end(id, libc::ECONNRESET);
        }
    }

    /// Forgets all connections of a host that has crashed, without a word to anybody.
    pub(crate) fn lose_sockets(&mut self, host: usize) {
        for end in self.net.ends.values_mut().filter(|end| end.host == host) {
            end.fd = None;
            end.gone.get_or_insert(Gone::Lost);
        }
        let packets = &mut self.net.packets;
        packets.retain(|_, packet| packet.from != host || packet.to != host);
        // It sends nothing again.
        self.net.held.retain(|packet| packet.from != host);
    }

    /// Has a host that has started again answer writers that wait for room there: they ask again
    /// and again.
    pub(crate) fn answer_writers(&mut self, host: usize) {
        let ends = &self.net.ends;
        let waiting = ends.values().filter_map(|end| {
            let is_lost = end.host == host && end.gone == Some(Gone::Lost);
            let other = ends
                .get(&end.other)
                .filter(|other| is_lost && other.waits_for_room)?;
            Some((other.host, end.other))
        });
        let waiting: Vec<(usize, EndId)> = waiting.collect();
        for (at, end) in waiting {
            self.send(host, at, Body::Reset { to: end });
        }
    }
}

impl Socket {
    pub(crate) fn new(kind: Kind, is_blocking: bool) -> Self {
        Self {
            kind,
            is_blocking,
            local: None,
            options: BTreeMap::new(),
        }
    }

    /// Returns whether what is sent to an address comes to this socket.
    fn is_at(&self, at: SocketAddrV4) -> bool {
        self.local.is_some_and(|local| {
            local.port() == at.port() && (local.ip().is_unspecified() || local.ip() == at.ip())
        })
    }

    /// Returns the time limit of calls that read, or of those that write, in ns.
    pub(crate) fn limit(&self, name: i32) -> Option<u64> {
        let value = self.options.get(&(libc::SOL_SOCKET, name))?;
        let part = |at: usize| Some(i64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
        let nanos = part(0)?.saturating_mul(1_000_000_000) + part(8)?.saturating_mul(1_000);
        u64::try_from(nanos).ok().filter(|&nanos| nanos > 0)
    }

    fn option(&self, level: i32, name: i32) -> Option<i32> {
        let value = self.options.get(&(level, name))?;
        Some(i32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
    }

    fn shares_port(&self) -> bool {
        self.option(libc::SOL_SOCKET, libc::SO_REUSEPORT) == Some(1)
    }

    /// Returns whether a close resets the connection.
    pub(crate) fn lingers_for_zero(&self) -> bool {
        let linger = self.options.get(&(libc::SOL_SOCKET, libc::SO_LINGER));
        linger.is_some_and(|value| value.get(..8) == Some(&[1, 0, 0, 0, 0, 0, 0, 0]))
    }
}

impl Body {
    /// Returns the end to which it is sent, if it belongs to a connection that has both.
    fn end(&self) -> Option<EndId> {
        match *self {
            Body::Agreed { to }
            | Body::Opened { to }
            | Body::Data { to, .. }
            | Body::Fin { to }
            | Body::Reset { to }
            | Body::Room { to } => Some(to),
            _ => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Body::Syn { .. } => "a request for a connection",
            Body::Agreed { .. } => "the answer to a connect",
            Body::Opened { .. } => "the last step of a connect",
            Body::Refused { .. } => "the refusal of a connect",
            Body::Data { .. } => "data",
            Body::Fin { .. } => "the end of a stream",
            Body::Reset { .. } => "a reset",
            Body::Room { .. } => "an acknowledgement",
            Body::GiveUp { .. } => "a time-out",
            Body::Datagram { .. } => "a datagram",
        }
    }
}

impl State {
    /// Returns the address of a socket's peer.
    pub(crate) fn peer(&mut self, fd: i32) -> Result<SocketAddrV4, Errno> {
        match &self.socket(fd)?.kind {
            Kind::Udp(datagrams) => datagrams.peer.ok_or(libc::ENOTCONN),
            &Kind::Connection(id) => {
                let end = self.net.end(id).filter(|end| end.is_connected());
                end.map(|end| end.peer).ok_or(libc::ENOTCONN)
            }
            _ => Err(libc::ENOTCONN),
        }
    }

    /// Returns the value of an option of a socket.
    pub(crate) fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        let socket = self.socket(fd)?;
        let number = |number: i32| Ok(number.to_ne_bytes().to_vec());
        match (level, name, &socket.kind) {
            (libc::SOL_SOCKET, libc::SO_ERROR, &Kind::Connection(id)) => {
                let end = self.net.end_mut(id);
                number(end.and_then(|end| end.error.take()).unwrap_or(0))
            }
            (libc::SOL_SOCKET, libc::SO_TYPE, Kind::Udp(_)) => number(libc::SOCK_DGRAM),
            (libc::SOL_SOCKET, libc::SO_TYPE, _) => number(libc::SOCK_STREAM),
            (libc::SOL_SOCKET, libc::SO_DOMAIN, _) => number(libc::AF_INET),
            _ => {
                let is_linger = (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER);
                let unset = || vec![0; if is_linger { 8 } else { 4 }];
                let known = socket.options.get(&(level, name));
                Ok(known.cloned().unwrap_or_else(unset))
            }
        }
    }

    /// Returns whether a connect has ended, in the manner of a call that would block.
    pub(crate) fn is_connected(&mut self, id: EndId) -> Result<(), Errno> {
        let end = self.net.end_mut(id).ok_or(libc::ECONNRESET)?;
        match (end.error.take(), end.is_connected()) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(()),
            (None, false) => Err(libc::EAGAIN),
        }
    }

    /// Closes a socket that the kernel has forgotten.
    pub(crate) fn close_socket(&mut self, socket: Socket) {
        let resets = socket.lingers_for_zero();
        match socket.kind {
            Kind::Connection(id) => self.close_end(id, resets),
            // Nobody will accept these.
            Kind::Listener(queue) => queue.into_iter().for_each(|id| self.close_end(id, true)),
            Kind::Idle | Kind::Udp(_) => {}
        }
    }
}
