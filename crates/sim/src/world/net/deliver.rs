//! What the arrival of a packet does.

use std::net::SocketAddrV4;

use super::{
    super::{State, story::Part},
    Body, EndId, Errno, Gone, Kind, Packet,
};

impl State {
    /// Delivers the packets that have arrived.
    pub(crate) fn deliver(&mut self) {
        while let Some(entry) = self.net.packets.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let packet = entry.remove();
            self.arrive(packet);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        let (from, to) = (packet.from, packet.to);
        let is_stopped = to == 0 || self.net.cut.contains(&(from, to)) || self.hosts[to].is_down;
        if is_stopped && !matches!(packet.body, Body::GiveUp { .. }) {
            self.tell(Part::Plain, || {
                let name = packet.body.name();
                format!("{name} from {} does not get through", self.hosts[from].name)
            });
            // The sender of a segment sends it again and again. Nobody does that for a datagram.
            if to != 0 && !matches!(packet.body, Body::Datagram { .. }) {
                self.net.held.push(packet);
            }
            return;
        }
        self.tell(Part::Plain, || {
            let (from, to) = (&self.hosts[from].name, &self.hosts[to].name);
            format!("{} from {from} arrives at {to}", packet.body.name())
        });
        if self.draws && packet.flow > 0 {
            let what = format!("{} from {}", packet.body.name(), self.hosts[from].name);
            self.draw_packet(packet.flow, to, &what, true);
        }
        let (Some(number), Some(id)) = (packet.number, packet.body.end()) else {
            return self.take_in(from, to, packet.body);
        };
        // What comes before its turn waits for those between.
        if let Some(end) = self.net.ends.get_mut(&id) {
            end.early.insert(number, packet.body);
        }
        while let Some(body) = self.net.end_mut(id).and_then(|end| end.next_body()) {
            self.take_in(from, to, body);
        }
    }

    /// Does what a packet from one host to another asks for.
    fn take_in(&mut self, from: usize, to: usize, body: Body) {
        match body {
            Body::Syn {
                from: client,
                to: at,
            } => self.arrived_syn(from, to, client, at),
            Body::Refused { to } => self.fail_end(to, libc::ECONNREFUSED),
            Body::Reset { to } => self.fail_end(to, libc::ECONNRESET),
            Body::GiveUp { end } => {
                if self.net.end(end).is_some_and(|end| !end.is_open) {
                    self.fail_end(end, libc::ETIMEDOUT);
                }
            }
            Body::Datagram {
                from,
                to: at,
                bytes,
            } => self.arrived_datagram(to, from, at, bytes),
            Body::Agreed { to: id }
            | Body::Opened { to: id }
            | Body::Data { to: id, .. }
            | Body::Fin { to: id }
            | Body::Room { to: id } => {
                let Some(end) = self.net.ends.get_mut(&id) else {
                    return;
                };
                if let Body::Data { bytes, .. } = &body {
                    end.under_way -= bytes.len();
                }
                let (gone, other, has_failed) = (end.gone, end.other, end.has_failed);
                // A host resets what it knows nothing of. It remembers a connection that its
                // program has closed, and says then that data has no reader.
                let resets = match (gone, &body) {
                    (None, Body::Agreed { .. }) => has_failed,
                    (None, _) => false,
                    (Some(Gone::Lost), _) => true,
                    (Some(Gone::Closed), body) => {
                        matches!(body, Body::Agreed { .. } | Body::Data { .. })
                    }
                };
                if resets {
                    self.send(to, from, Body::Reset { to: other });
                } else if gone.is_none() && !has_failed {
                    self.change_end(to, id, body);
                }
            }
        }
    }

    /// Does what a packet to a connection asks for that its program still has.
    fn change_end(&mut self, host: usize, id: EndId, body: Body) {
        let Some(end) = self.net.ends.get_mut(&id) else {
            return;
        };
        let (other, fd) = (end.other, end.fd);
        match body {
            Body::Agreed { .. } => {
                end.is_open = true;
                self.send_in_order(host, id, other, Body::Opened { to: other });
            }
            Body::Opened { .. } => {
                end.is_open = true;
                let listener = end.listener;
                if self.queue_at(host, listener, id).is_err() {
                    // The listener was closed meanwhile.
                    self.close_end(id, true);
                }
            }
            Body::Data { bytes, .. } => end.incoming.extend(bytes),
            Body::Fin { .. } => end.has_ended = true,
            _ => {}
        }
        fd.into_iter().for_each(|fd| self.signal(fd));
    }

    /// Queues an open connection at its listener.
    fn queue_at(&mut self, host: usize, listener: Option<i32>, id: EndId) -> Result<(), Errno> {
        let fd = listener.ok_or(libc::EBADF)?;
        let at = self.net.end(id).map(|end| end.local).ok_or(libc::EBADF)?;
        let found = self.kernel.sockets().find(|it| it.0 == fd && it.1 == host);
        if !found.is_some_and(|(_, _, socket)| socket.is_at(at)) {
            return Err(libc::EBADF);
        }
        let Kind::Listener(queue) = &mut self.socket(fd)?.kind else {
            return Err(libc::EINVAL);
        };
        queue.push_back(id);
        self.signal(fd);
        Ok(())
    }

    /// A request for a connection has come to a host.
    fn arrived_syn(&mut self, from: usize, to: usize, client: EndId, at: SocketAddrV4) {
        let listeners = self.kernel.sockets().filter(|(_, host, socket)| {
            matches!(socket.kind, Kind::Listener(_)) && *host == to && socket.is_at(at)
        });
        let listeners: Vec<i32> = listeners.map(|(fd, ..)| fd).collect();
        if listeners.is_empty() {
            return self.send(to, from, Body::Refused { to: client });
        }
        let fd = listeners[self.which(listeners.len())];
        if let Some(end) = self.answer(to, client, at, fd) {
            self.send_in_order(to, end, client, Body::Agreed { to: client });
        }
    }

    /// A datagram has come to a host.
    fn arrived_datagram(
        &mut self,
        to: usize,
        from: SocketAddrV4,
        at: SocketAddrV4,
        bytes: Vec<u8>,
    ) {
        let sockets = self.kernel.sockets().filter_map(|(fd, host, socket)| {
            let Kind::Udp(datagrams) = &socket.kind else {
                return None;
            };
            let takes =
                host == to && socket.is_at(at) && datagrams.peer.is_none_or(|peer| peer == from);
            takes.then_some((fd, datagrams.peer.is_some()))
        });
        let mut sockets: Vec<(i32, bool)> = sockets.collect();
        // One that is connected to the sender comes before those that are not connected.
        if sockets.iter().any(|it| it.1) {
            sockets.retain(|it| it.1);
        }
        if sockets.is_empty() {
            return;
        }
        let (fd, _) = sockets[self.which(sockets.len())];
        if let Ok(socket) = self.socket(fd) {
            if let Kind::Udp(datagrams) = &mut socket.kind {
                if datagrams.push(from, bytes) {
                    self.signal(fd);
                }
            }
        }
    }
}
