//! Hosts that crash and start again, and clocks that are set.

use std::sync::MutexGuard;

use super::{Run, State, World, clocks::Clock, me, story::Part};

impl State {
    /// Takes the power from a host.
    pub(crate) fn crash(&mut self, host: usize) {
        self.tell(Part::Asked, || format!("{} crashes", self.hosts[host].name));
        self.hosts[host].is_down = true;
        self.hosts[host].has_ended = false;
        self.hosts[host].paused_until = 0;
        self.hosts[host].core_loss = None;
        for thread in &mut self.threads {
            if thread.host == host && thread.run != Run::Over {
                thread.run = Run::Crashed;
            }
        }
        for fd in self.kernel.of_host(host) {
            // Its threads never close it.
            self.kernel.forget(fd);
            crate::calls::really_close(fd);
        }
        self.lose_sockets(host);
        self.crash_disk(host);
    }

    /// Gives a host its power back. Returns `false` if it had not crashed.
    pub(crate) fn restart(&mut self, host: usize) -> bool {
        if !std::mem::take(&mut self.hosts[host].is_down) {
            return false;
        }
        self.hosts[host].restarts += 1;
        self.tell(Part::Asked, || {
            format!("{} starts again", self.hosts[host].name)
        });
        self.answer_writers(host);
        self.release();
        true
    }

    /// Returns whether the host of the calling thread has crashed.
    pub(crate) fn has_crashed(&self) -> bool {
        me().is_some_and(|me| self.threads[me].run == Run::Crashed)
    }

    /// Sets the wall clock of a host.
    pub(crate) fn set_wall(&mut self, host: usize, to: u64) {
        self.tell(Part::Asked, || {
            format!("the wall clock of {} is set", self.hosts[host].name)
        });
        let now = self.now;
        let clocks = &mut self.hosts[host].clocks;
        let shown = clocks.read(Clock::Wall, now);
        clocks.wall = clocks.wall.wrapping_add(to.wrapping_sub(shown));
        self.clock_was_set(host);
    }
}

impl World {
    /// Hands the baton to another thread. The calling one does not get it again.
    pub(crate) fn leave(&self, mut state: MutexGuard<'_, State>) {
        let me = me().expect("it is a thread of the world");
        state.threads[me].turn += 1;
        self.next(state, me);
        unreachable!("a thread of a host that has crashed never runs again");
    }
}
