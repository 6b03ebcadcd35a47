//! Epoll instances, and what they watch.

use super::{State, Wait};

impl State {
    /// Adds a watch of an instance. Returns whether the descriptor has events already.
    pub(crate) fn watch(&mut self, instance: i32, fd: i32, token: u64, conditions: u32) -> bool {
        self.kernel
            .watch(&self.net, instance, fd, token, conditions)
    }

    /// Returns whether a wait at a descriptor ends now: an instance has events, or another
    /// descriptor has one of these conditions.
    pub(crate) fn is_ready(&self, fd: i32, conditions: u32) -> bool {
        match self.kernel.is_instance(fd) {
            true => self.kernel.has_events(&self.net, fd),
            false => self.conditions(fd) & conditions != 0,
        }
    }

    /// Takes at most `room` events of an instance: tokens and conditions.
    pub(crate) fn take(&mut self, instance: i32, room: usize) -> Vec<(u64, u32)> {
        self.kernel.take(&self.net, instance, room)
    }

    /// Returns the present conditions of a descriptor, as in `epoll_event`.
    pub(crate) fn conditions(&self, fd: i32) -> u32 {
        self.kernel.conditions(&self.net, fd)
    }

    /// Notifies the instances that watch a descriptor, and who waits for it. Of instances with a
    /// shared watch, only one with a waiting thread is notified.
    pub(crate) fn signal(&mut self, fd: i32) {
        // Who watches an eventfd may do so by any of its descriptors.
        let fds = self.kernel.same(fd);
        self.wake(|wait| matches!(wait, Wait::Socket(at) if fds.contains(&at)));
        for (instance, fd, exclusive) in self.kernel.watchers(&fds) {
            self.kernel.push_ready(instance, fd);
            // Another instance may watch this one.
            self.signal(instance);
            let waiter = self.waiting(Wait::Epoll(instance)).first().copied();
            if let Some(waiter) = waiter {
                self.wake_one(waiter);
                // As with `EPOLLEXCLUSIVE`: of the threads that wait, one is woken.
                if exclusive {
                    break;
                }
            }
        }
    }
}
