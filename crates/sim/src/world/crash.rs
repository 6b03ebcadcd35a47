//! Hosts that crash, processes that end, programs that start again, and clocks that are set.

use std::sync::MutexGuard;

use super::{Run, State, World, clocks::Clock, me, signals::Signals, story::Part};

impl State {
    /// Takes the power from a host.
    pub(crate) fn crash(&mut self, host: usize) {
        self.tell(Part::Asked, || format!("{} crashes", self.hosts[host].name));
        self.hosts[host].is_down = true;
        self.hosts[host].has_ended = false;
        self.stop_threads(host);
        for fd in self.kernel.of_host(host) {
            // Its threads never close it.
            self.kernel.forget(fd);
            crate::calls::really_close(fd);
        }
        self.lose_sockets(host);
        self.crash_disk(host);
    }

    /// Ends the process of a host. The system goes on, and closes what the process has left open.
    pub(crate) fn end_process(&mut self, host: usize) {
        self.stop_threads(host);
        self.end_maps(host);
        for fd in self.kernel.of_host(host) {
            self.close(fd);
            crate::calls::really_close(fd);
        }
    }

    /// Stops the threads of a host for ever.
    fn stop_threads(&mut self, host: usize) {
        let stopped = &mut self.hosts[host];
        (stopped.runs, stopped.main) = (false, None);
        (stopped.paused_until, stopped.core_loss) = (0, None);
        stopped.signals.is_stopped = false;
        for thread in &mut self.threads {
            if thread.host == host && thread.run != Run::Over {
                thread.run = Run::Crashed;
            }
        }
    }

    /// Gives a host its power back, if it has none, and lets it have another process. Returns
    /// `false` if it has one.
    pub(crate) fn restart(&mut self, host: usize) -> bool {
        if std::mem::replace(&mut self.hosts[host].runs, true) {
            return false;
        }
        let was_down = std::mem::take(&mut self.hosts[host].is_down);
        self.hosts[host].has_ended = false;
        self.hosts[host].restarts += 1;
        self.hosts[host].signals = Signals::new();
        self.tell(Part::Asked, || {
            format!("{} starts again", self.hosts[host].name)
        });
        if was_down {
            self.answer_writers(host);
            self.release();
        }
        true
    }

    /// Returns whether the process of the calling thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
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
    pub(crate) fn leave(&self, mut state: MutexGuard<'_, State>) -> ! {
        let me = me().expect("it is a thread of the world");
        state.threads[me].turn += 1;
        self.next(state, me);
        unreachable!("a thread of a process that has ended never runs again");
    }
}
