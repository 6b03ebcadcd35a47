//! The descriptors of a world: eventfds, timerfds, and the epoll instances that watch them,
//! edge-triggered.

use std::collections::{BTreeMap, VecDeque};

use super::world::NEVER;

/// What the kernel of the world knows. A descriptor that was closed is not heard of: its number is
/// given again.
#[derive(Default)]
pub(super) struct Kernel {
    objects: BTreeMap<i32, Object>,
    /// In the order in which the kernel goes through them: those that share a descriptor come last.
    watches: Vec<Watch>,
    /// Writes that take their effect later.
    late: Vec<(u64, i32)>,
}

/// What a descriptor is.
pub(super) enum Object {
    Event(u64),
    Timer(Timer),
    /// The descriptors that had an edge since they were last looked at.
    Epoll(VecDeque<i32>),
}

/// A timerfd.
pub(super) struct Timer {
    /// 0: the monotonic clock; 1: the one that goes on while the machine is suspended; 2: the wall
    /// clock.
    pub(super) clock: usize,
    /// By its own clock; [`NEVER`] if it is not set.
    pub(super) at: u64,
    pub(super) ticks: u64,
    /// It tells of steps of its clock.
    pub(super) tells: bool,
    /// There was one that it has not told of.
    pub(super) stepped: bool,
}

impl Timer {
    /// Returns whether its clock was set since this was last asked.
    pub(super) fn take_step(&mut self) -> bool {
        self.tells && std::mem::take(&mut self.stepped)
    }
}

struct Watch {
    instance: i32,
    fd: i32,
    token: u64,
    shared: bool,
}

impl Kernel {
    /// There is a new descriptor.
    pub(super) fn open(&mut self, fd: i32, object: Object) {
        self.watches.retain(|it| it.fd != fd && it.instance != fd);
        self.late.retain(|it| it.1 != fd);
        for object in self.objects.values_mut() {
            if let Object::Epoll(ready) = object {
                ready.retain(|it| *it != fd);
            }
        }
        self.objects.insert(fd, object);
    }

    pub(super) fn get(&mut self, fd: i32) -> Option<&mut Object> {
        self.objects.get_mut(&fd)
    }

    pub(super) fn eventfds(&self) -> Vec<i32> {
        let events = self.objects.iter();
        let events = events.filter(|(_, object)| matches!(object, Object::Event(_)));
        events.map(|(fd, _)| *fd).collect()
    }

    pub(super) fn add(&mut self, fd: i32) {
        if let Some(Object::Event(count)) = self.objects.get_mut(&fd) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn write_later(&mut self, fd: i32, at: u64) {
        self.late.push((at, fd));
    }

    pub(super) fn take_late(&mut self, now: u64) -> Option<i32> {
        let place = self.late.iter().position(|(at, _)| *at <= now)?;
        Some(self.late.remove(place).1)
    }

    /// Has an instance watch a descriptor; whether that has something to tell already.
    pub(super) fn watch(&mut self, instance: i32, fd: i32, token: u64, shared: bool) -> bool {
        let watch = Watch {
            instance,
            fd,
            token,
            shared,
        };
        if shared {
            self.watches.push(watch);
        } else {
            self.watches.insert(0, watch);
        }
        let ready = self.is_readable(fd);
        if ready {
            self.push_ready(instance, fd);
        }
        ready
    }

    pub(super) fn unwatch(&mut self, instance: i32, fd: i32) -> bool {
        let before = self.watches.len();
        self.watches
            .retain(|it| it.instance != instance || it.fd != fd);
        self.watches.len() < before
    }

    /// Who watches a descriptor, and whether as one of several.
    pub(super) fn watchers(&self, fd: i32) -> Vec<(i32, bool)> {
        let watches = self.watches.iter().filter(|it| it.fd == fd);
        watches.map(|it| (it.instance, it.shared)).collect()
    }

    pub(super) fn push_ready(&mut self, instance: i32, fd: i32) {
        if let Some(Object::Epoll(ready)) = self.objects.get_mut(&instance) {
            if !ready.contains(&fd) {
                ready.push_back(fd);
            }
        }
    }

    fn is_readable(&self, fd: i32) -> bool {
        match self.objects.get(&fd) {
            Some(Object::Event(count)) => *count > 0,
            Some(Object::Timer(timer)) => timer.ticks > 0,
            _ => false,
        }
    }

    /// Returns whether an instance has something to tell.
    pub(super) fn has_events(&self, instance: i32) -> bool {
        match self.objects.get(&instance) {
            Some(Object::Epoll(ready)) => ready.iter().any(|&fd| self.is_readable(fd)),
            _ => false,
        }
    }

    /// Takes what an instance has to tell, `room` tokens at most.
    pub(super) fn take(&mut self, instance: i32, room: usize) -> Vec<u64> {
        let mut tokens = Vec::new();
        while tokens.len() < room {
            let Some(Object::Epoll(ready)) = self.objects.get_mut(&instance) else {
                break;
            };
            let Some(fd) = ready.pop_front() else { break };
            // What was read, or set anew, meanwhile is not told.
            if !self.is_readable(fd) {
                continue;
            }
            let watch = self
                .watches
                .iter()
                .find(|it| it.instance == instance && it.fd == fd);
            tokens.extend(watch.map(|it| it.token));
        }
        tokens
    }

    /// The timerfds that are due, which have ticked. `offsets` is what their clocks show more than
    /// `now`.
    pub(super) fn take_due(&mut self, now: u64, offsets: [u64; 3]) -> Vec<i32> {
        let mut due = Vec::new();
        for (fd, object) in &mut self.objects {
            let Object::Timer(timer) = object else {
                continue;
            };
            if timer.at != NEVER && timer.at <= now.wrapping_add(offsets[timer.clock]) {
                timer.at = NEVER;
                timer.ticks += 1;
                due.push(*fd);
            }
        }
        due
    }

    /// When the next of all that is due, by the clock that nobody sets.
    pub(super) fn next_due(&self, offsets: [u64; 3]) -> u64 {
        let timers = self.objects.values().filter_map(|object| match object {
            Object::Timer(timer) if timer.at != NEVER => {
                Some(timer.at.saturating_sub(offsets[timer.clock]))
            }
            _ => None,
        });
        let late = self.late.iter().map(|(at, _)| *at);
        timers.chain(late).min().unwrap_or(NEVER)
    }

    /// The wall clock was set: the timerfds that tell of it, which have ticked.
    pub(super) fn clock_was_set(&mut self) -> Vec<i32> {
        let mut told = Vec::new();
        for (fd, object) in &mut self.objects {
            if let Object::Timer(timer) = object {
                if timer.tells {
                    timer.stepped = true;
                    timer.ticks += 1;
                    told.push(*fd);
                }
            }
        }
        told
    }
}
