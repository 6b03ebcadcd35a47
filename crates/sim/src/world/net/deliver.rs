//! What the arrival of a packet does.

use super::{super::State, Body, Kind, Packet};

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
        let Packet { from, to, body } = packet;
        let is_lost = to == 0 || self.net.cut.contains(&(from, to)) || self.hosts[to].is_down;
        if is_lost && !matches!(body, Body::GiveUp { .. }) {
            self.note(|| format!("{} does not get through", body.name()));
            // The sender of a segment sends it again and again. Nobody does that for a datagram.
            if to != 0 && !matches!(body, Body::Datagram { .. }) {
                self.net.held.push(Packet { from, to, body });
            }
            return;
        }
        self.note(|| {
            let (from, to) = (&self.hosts[from].name, &self.hosts[to].name);
            format!("{} of {from} arrives at {to}", body.name())
        });
        match body {
            Body::Syn {
                from: client,
                to: at,
            } => self.arrived_syn(from, to, client, at),
            Body::Accepted { to } => {
                if let Some(end) = self.net.ends.get_mut(&to).filter(|end| !end.has_failed) {
                    end.is_open = true;
                    let fd = end.fd;
                    fd.into_iter().for_each(|fd| self.signal(fd));
                }
            }
            Body::Refused { to } => self.fail_end(to, libc::ECONNREFUSED),
            Body::Data {
                to: end,
                from: sender,
                bytes,
            } => {
                let Some(receiver) = self.net.ends.get_mut(&end) else {
                    // The receiver is gone, and its host says so.
                    self.send(to, from, Body::Reset { to: sender }, 0);
                    return;
                };
                receiver.under_way = receiver.under_way.saturating_sub(bytes.len());
                if !receiver.has_failed && !receiver.reads_no_more {
                    receiver.incoming.extend(bytes);
                    let fd = receiver.fd;
                    fd.into_iter().for_each(|fd| self.signal(fd));
                }
            }
            Body::Fin { to: end } => {
                if let Some(receiver) = self.net.ends.get_mut(&end) {
                    receiver.has_ended = true;
                    let fd = receiver.fd;
                    fd.into_iter().for_each(|fd| self.signal(fd));
                }
            }
            Body::Reset { to } => self.fail_end(to, libc::ECONNRESET),
            Body::Room { to } => {
                let fd = self.net.ends.get(&to).and_then(|end| end.fd);
                fd.into_iter().for_each(|fd| self.signal(fd));
            }
            Body::GiveUp { end } => {
                if self.net.ends.get(&end).is_some_and(|end| !end.is_open) {
                    self.fail_end(end, libc::ETIMEDOUT);
                }
            }
            Body::Datagram {
                from,
                to: at,
                bytes,
            } => {
                let found = self.kernel.sockets().find(|(_, host, socket)| {
                    matches!(socket.kind, Kind::Udp(_))
                        && *host == to
                        && socket.local.is_some_and(|local| local.port() == at.port())
                });
                let Some((fd, ..)) = found else { return };
                if let Ok(socket) = self.socket(fd) {
                    if let Kind::Udp(datagrams) = &mut socket.kind {
                        if datagrams.push(from, bytes) {
                            self.signal(fd);
                        }
                    }
                }
            }
        }
    }

    /// A request for a connection has come to a host.
    fn arrived_syn(
        &mut self,
        from: usize,
        to: usize,
        client: super::EndId,
        at: std::net::SocketAddrV4,
    ) {
        let listeners = self.kernel.sockets().filter(|(_, host, socket)| {
            matches!(socket.kind, Kind::Listener(_))
                && *host == to
                && socket.local.is_some_and(|local| local.port() == at.port())
        });
        let listeners: Vec<i32> = listeners.map(|(fd, ..)| fd).collect();
        if listeners.is_empty() {
            self.send(to, from, Body::Refused { to: client }, 0);
            return;
        }
        let fd = listeners[self.rng.usize(..listeners.len())];
        let Some(end) = self.answer(to, client, at) else {
            return;
        };
        let arrives = self.send(to, from, Body::Accepted { to: client }, 0);
        // What the server sends comes after the answer.
        if let Some(client) = self.net.ends.get_mut(&client) {
            client.last_arrival = arrives;
        }
        if let Ok(socket) = self.socket(fd) {
            if let Kind::Listener(queue) = &mut socket.kind {
                queue.push_back(end);
                self.signal(fd);
            }
        }
    }
}
