//! Eventfds, each of which may have several descriptors.

use std::collections::BTreeMap;

/// All eventfds, by their numbers.
#[derive(Default)]
pub(super) struct Events {
    all: BTreeMap<u64, Event>,
    last: u64,
}

struct Event {
    count: u64,
    /// Its descriptors, at least one.
    fds: Vec<i32>,
}

impl Events {
    /// Returns the number of a new eventfd, which gets its descriptors by [`hold`](Events::hold).
    pub(super) fn make(&mut self, count: u64) -> u64 {
        self.last += 1;
        let fds = Vec::new();
        self.all.insert(self.last, Event { count, fds });
        self.last
    }

    /// Gives an eventfd a descriptor.
    pub(super) fn hold(&mut self, number: u64, fd: i32) {
        if let Some(event) = self.all.get_mut(&number) {
            event.fds.push(fd);
        }
    }

    /// Takes a descriptor from an eventfd. Returns whether it was the last one.
    pub(super) fn release(&mut self, number: u64, fd: i32) -> bool {
        let Some(event) = self.all.get_mut(&number) else {
            return false;
        };
        event.fds.retain(|it| *it != fd);
        let is_last = event.fds.is_empty();
        if is_last {
            self.all.remove(&number);
        }
        is_last
    }

    pub(super) fn descriptors(&self, number: u64) -> &[i32] {
        self.all.get(&number).map_or(&[], |event| &event.fds)
    }

    pub(super) fn count(&self, number: u64) -> u64 {
        self.all.get(&number).map_or(0, |event| event.count)
    }

    pub(super) fn add(&mut self, number: u64) {
        if let Some(event) = self.all.get_mut(&number) {
            event.count = event.count.saturating_add(1);
        }
    }

    /// Reads an eventfd: returns its count, which is zero from then on.
    pub(super) fn take(&mut self, number: u64) -> u64 {
        let event = self.all.get_mut(&number);
        event.map_or(0, |event| std::mem::take(&mut event.count))
    }
}
