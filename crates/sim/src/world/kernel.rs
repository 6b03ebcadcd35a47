//! The simulated descriptors: eventfds, timerfds, sockets, and epoll instances that watch them,
//! edge-triggered.

use std::collections::{BTreeMap, VecDeque};

use super::{
    NEVER,
    clocks::Clock,
    eventfd::Events,
    hosts::Host,
    net::{Net, Socket},
    pair::Stream,
};

/// The condition of eventfds, timerfds and sockets that a read returns at once.
pub(crate) const READABLE: u32 = libc::EPOLLIN as u32;

/// The state of the simulated kernel.
#[derive(Default)]
pub(crate) struct Kernel {
    objects: BTreeMap<i32, Object>,
    /// The machine of each descriptor.
    hosts: BTreeMap<i32, usize>,
    /// In the order in which the kernel notifies them: shared watches come last.
    watches: Vec<Watch>,
    events: Events,
    /// Delayed writes: time and number of the eventfd.
    delayed: Vec<(u64, u64)>,
}

/// The object of a descriptor.
pub(crate) enum Object {
    /// An eventfd, by its number.
    Event(u64),
    Timer(Timer),
    /// One end of a pair.
    Stream(Stream),
    Socket(Socket),
    /// An open file, by its number.
    File(u64),
    /// `/dev/urandom`.
    Random,
    /// The descriptors with an event since they were last taken.
    Epoll(VecDeque<i32>),
}

/// A timerfd.
pub(crate) struct Timer {
    /// The machine whose clock it follows.
    pub(crate) host: usize,
    pub(crate) clock: Clock,
    /// The deadline on its clock; [`NEVER`] if it is disarmed.
    pub(crate) at: u64,
    pub(crate) ticks: u64,
    /// It reports steps of its clock (`TFD_TIMER_CANCEL_ON_SET`).
    pub(crate) cancel_on_set: bool,
    /// A step has happened and has not been reported.
    pub(crate) stepped: bool,
}

impl Timer {
    /// Returns and clears whether its clock was set.
    pub(crate) fn take_step(&mut self) -> bool {
        self.cancel_on_set && std::mem::take(&mut self.stepped)
    }
}

struct Watch {
    instance: i32,
    fd: i32,
    token: u64,
    /// The conditions that are watched, as in `epoll_event`.
    conditions: u32,
    shared: bool,
}

impl Kernel {
    /// Adds a descriptor of a machine.
    pub(crate) fn open(&mut self, fd: i32, host: usize, object: Object) {
        // A thread that has left the simulation may have closed an earlier one of this number.
        self.forget(fd);
        if let Object::Event(number) = object {
            self.events.hold(number, fd);
        }
        self.objects.insert(fd, object);
        self.hosts.insert(fd, host);
    }

    /// Adds the first descriptor of a new eventfd.
    pub(crate) fn open_event(&mut self, fd: i32, host: usize, count: u64) {
        let number = self.events.make(count);
        self.open(fd, host, Object::Event(number));
    }

    /// Forgets a descriptor that is closed, its watches, and all that is on its way to it.
    pub(crate) fn forget(&mut self, fd: i32) -> Option<Object> {
        self.watches.retain(|it| it.fd != fd && it.instance != fd);
        for object in self.objects.values_mut() {
            if let Object::Epoll(ready) = object {
                ready.retain(|it| *it != fd);
            }
        }
        self.hosts.remove(&fd);
        let object = self.objects.remove(&fd);
        if let Some(Object::Event(number)) = object {
            if self.events.release(number, fd) {
                self.delayed.retain(|it| it.1 != number);
            }
        }
        object
    }

    /// Returns the number of the eventfd of a descriptor.
    pub(crate) fn event(&self, fd: i32) -> Option<u64> {
        match self.objects.get(&fd) {
            Some(Object::Event(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns all descriptors of the object that this one is of, if that is an eventfd, and else
    /// this one.
    pub(crate) fn same(&self, fd: i32) -> Vec<i32> {
        match self.event(fd) {
            Some(number) => self.events.descriptors(number).to_vec(),
            None => vec![fd],
        }
    }

    /// Returns all sockets: descriptor, machine, socket.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (i32, usize, &Socket)> {
        self.objects.iter().filter_map(|(fd, object)| match object {
            Object::Socket(socket) => Some((*fd, self.hosts[fd], socket)),
            _ => None,
        })
    }

    /// Returns the number of the open file of a descriptor.
    pub(crate) fn file(&self, fd: i32) -> Option<u64> {
        match self.objects.get(&fd) {
            Some(Object::File(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns whether the object of a descriptor may have another one.
    pub(crate) fn can_share(&self, fd: i32) -> bool {
        matches!(
            self.objects.get(&fd),
            Some(Object::File(_) | Object::Event(_) | Object::Random)
        )
    }

    /// Returns whether a descriptor is of `/dev/urandom`.
    pub(crate) fn is_random(&self, fd: i32) -> bool {
        matches!(self.objects.get(&fd), Some(Object::Random))
    }

    /// Returns the machine of a descriptor.
    pub(crate) fn host_of(&self, fd: i32) -> Option<usize> {
        self.hosts.get(&fd).copied()
    }

    /// Returns the descriptors of a machine.
    pub(crate) fn of_host(&self, host: usize) -> Vec<i32> {
        let all = self.hosts.iter().filter(|(_, of)| **of == host);
        all.map(|(fd, _)| *fd).collect()
    }

    /// Returns whether a descriptor is one of the simulation.
    pub(crate) fn has(&self, fd: i32) -> bool {
        self.objects.contains_key(&fd)
    }

    pub(crate) fn get(&mut self, fd: i32) -> Option<&mut Object> {
        self.objects.get_mut(&fd)
    }

    /// Returns whether delayed writes are on their way.
    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Returns one descriptor of each eventfd.
    pub(crate) fn eventfds(&self) -> Vec<i32> {
        let events = self.objects.iter().filter(|(fd, object)| match object {
            Object::Event(number) => self.events.descriptors(*number).first() == Some(*fd),
            _ => false,
        });
        events.map(|(fd, _)| *fd).collect()
    }

    pub(crate) fn add(&mut self, fd: i32) {
        if let Some(number) = self.event(fd) {
            self.events.add(number);
        }
    }

    /// Reads an eventfd: returns its count, which is zero from then on.
    pub(crate) fn take_count(&mut self, number: u64) -> u64 {
        self.events.take(number)
    }

    pub(crate) fn write_later(&mut self, fd: i32, at: u64) {
        self.delayed
            .extend(self.event(fd).map(|number| (at, number)));
    }

    /// Takes a delayed write whose time has come. Returns a descriptor of its eventfd.
    pub(crate) fn take_late(&mut self, now: u64) -> Option<i32> {
        let place = self.delayed.iter().position(|(at, _)| *at <= now)?;
        let (_, number) = self.delayed.remove(place);
        self.events.descriptors(number).first().copied()
    }

    /// Adds a watch. Returns whether the descriptor has events already.
    pub(crate) fn watch(
        &mut self,
        net: &Net,
        instance: i32,
        fd: i32,
        token: u64,
        conditions: u32,
    ) -> bool {
        let shared = conditions & libc::EPOLLEXCLUSIVE as u32 != 0;
        let watch = Watch {
            instance,
            fd,
            token,
            conditions,
            shared,
        };
        // As in the kernel, exclusive watches stand behind the others.
        if shared {
            self.watches.push(watch);
        } else {
            self.watches.insert(0, watch);
        }
        // Watches are edge-triggered, but what is ready already counts as an edge.
        let ready = self.conditions(net, fd) & conditions != 0;
        if ready {
            self.push_ready(instance, fd);
        }
        ready
    }

    pub(crate) fn unwatch(&mut self, instance: i32, fd: i32) -> bool {
        let before = self.watches.len();
        self.watches
            .retain(|it| it.instance != instance || it.fd != fd);
        self.watches.len() < before
    }

    /// Returns whether an instance watches a descriptor.
    pub(crate) fn watches(&self, instance: i32, fd: i32) -> bool {
        let mut watches = self.watches.iter();
        watches.any(|it| it.instance == instance && it.fd == fd)
    }

    /// Returns whether an instance watches another one, itself or by those that it watches.
    pub(crate) fn reaches(&self, instance: i32, other: i32) -> bool {
        let mut watched = self.watches.iter().filter(|it| it.instance == instance);
        instance == other || watched.any(|it| self.reaches(it.fd, other))
    }

    /// Returns the watches of descriptors: the instance, the descriptor, and whether it is shared.
    pub(crate) fn watchers(&self, fds: &[i32]) -> Vec<(i32, i32, bool)> {
        let watches = self.watches.iter().filter(|it| fds.contains(&it.fd));
        watches.map(|it| (it.instance, it.fd, it.shared)).collect()
    }

    pub(crate) fn push_ready(&mut self, instance: i32, fd: i32) {
        if let Some(Object::Epoll(ready)) = self.objects.get_mut(&instance) {
            // A descriptor stands in the list once, however many events it has.
            if !ready.contains(&fd) {
                ready.push_back(fd);
            }
        }
    }

    fn stream(&self, fd: i32) -> Option<&Stream> {
        match self.objects.get(&fd) {
            Some(Object::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    /// Returns one end of a connection. It must be open.
    pub(crate) fn stream_mut(&mut self, fd: i32) -> &mut Stream {
        match self.objects.get_mut(&fd) {
            Some(Object::Stream(stream)) => stream,
            _ => unreachable!("the descriptor is an open socket"),
        }
    }

    /// Returns the present conditions of a descriptor, as in `epoll_event`.
    pub(crate) fn conditions(&self, net: &Net, fd: i32) -> u32 {
        let is_readable = match self.objects.get(&fd) {
            Some(Object::Event(number)) => self.events.count(*number) > 0,
            Some(Object::Timer(timer)) => timer.ticks > 0,
            Some(Object::Epoll(_)) => self.has_events(net, fd),
            Some(Object::Socket(socket)) => return net.conditions(socket),
            Some(Object::File(_) | Object::Random) => return READABLE | libc::EPOLLOUT as u32,
            Some(Object::Stream(stream)) => {
                let peer = stream.peer.and_then(|peer| self.stream(peer));
                return stream.conditions(peer.is_none_or(Stream::has_room));
            }
            _ => false,
        };
        if is_readable { READABLE } else { 0 }
    }

    /// Returns the token of a watch and the conditions that it reports now. `None` if there is no
    /// such watch, or nothing to report.
    fn report(&self, net: &Net, instance: i32, fd: i32) -> Option<(u64, u32)> {
        let mut watches = self.watches.iter();
        let watch = watches.find(|it| it.instance == instance && it.fd == fd)?;
        // Errors are reported whether they are watched or not.
        let always = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let conditions = self.conditions(net, fd) & (watch.conditions | always);
        (conditions != 0).then_some((watch.token, conditions))
    }

    /// Returns whether a descriptor is an epoll instance.
    pub(crate) fn is_instance(&self, fd: i32) -> bool {
        matches!(self.objects.get(&fd), Some(Object::Epoll(_)))
    }

    /// Returns whether an instance has events.
    pub(crate) fn has_events(&self, net: &Net, instance: i32) -> bool {
        match self.objects.get(&instance) {
            Some(Object::Epoll(ready)) => ready
                .iter()
                .any(|&fd| self.report(net, instance, fd).is_some()),
            _ => false,
        }
    }

    /// Takes at most `room` events from an instance: tokens and conditions.
    pub(crate) fn take(&mut self, net: &Net, instance: i32, room: usize) -> Vec<(u64, u32)> {
        let mut events = Vec::new();
        while events.len() < room {
            let Some(Object::Epoll(ready)) = self.objects.get_mut(&instance) else {
                break;
            };
            let Some(fd) = ready.pop_front() else { break };
            // Skip descriptors that were read or set anew meanwhile, and watches that have ended.
            events.extend(self.report(net, instance, fd));
        }
        events
    }

    /// Fires the timerfds that are due, and returns them.
    pub(crate) fn take_due(&mut self, now: u64, hosts: &[Host]) -> Vec<i32> {
        let mut due = Vec::new();
        for (fd, object) in &mut self.objects {
            let Object::Timer(timer) = object else {
                continue;
            };
            let clocks = &hosts[timer.host].clocks;
            if timer.at != NEVER && timer.at <= clocks.read(timer.clock, now) {
                // The runtime sets no intervals, so a timer fires once.
                timer.at = NEVER;
                timer.ticks += 1;
                due.push(*fd);
            }
        }
        due
    }

    /// Returns the time of the next timer or delayed write, on the monotonic clock.
    pub(crate) fn next_due(&self, hosts: &[Host]) -> u64 {
        let timers = self.objects.values().filter_map(|object| match object {
            Object::Timer(timer) if timer.at != NEVER => {
                Some(hosts[timer.host].clocks.when(timer.clock, timer.at))
            }
            _ => None,
        });
        let delayed = self.delayed.iter().map(|(at, _)| *at);
        timers.chain(delayed).min().unwrap_or(NEVER)
    }

    /// Reports a step of a machine's wall clock to the timerfds that asked for it. Returns them.
    pub(crate) fn clock_was_set(&mut self, host: usize) -> Vec<i32> {
        let mut reported = Vec::new();
        for (fd, object) in &mut self.objects {
            if let Object::Timer(timer) = object {
                if timer.cancel_on_set && timer.host == host {
                    // Readable until the step is taken, as the real timerfd is.
                    timer.stepped = true;
                    timer.ticks += 1;
                    reported.push(*fd);
                }
            }
        }
        reported
    }
}
