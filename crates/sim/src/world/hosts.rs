//! The machines of a simulation.

use super::{
    State, Wait,
    clocks::{Clock, Clocks},
    decide::{Class, Key, Met},
    disk::Volume,
    signals::Signals,
    story::Part,
};
use crate::simulation::Simulation;

/// A machine.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) clocks: Clocks,
    /// How many times it has started again.
    pub(crate) restarts: u32,
    /// It has crashed: it has no power.
    pub(crate) is_down: bool,
    /// A process runs its program.
    pub(crate) runs: bool,
    /// Its program has ended by itself.
    pub(crate) has_ended: bool,
    /// The main thread of its process.
    pub(crate) main: Option<usize>,
    pub(crate) signals: Signals,
    pub(crate) disk: Option<Volume>,
    /// The greatest number of its descriptors.
    pub(crate) descriptors: usize,
    /// None of its threads has a core before.
    pub(crate) paused_until: u64,
    /// After so many points of its threads, the one that passes the last of them loses its core for
    /// so many ns.
    pub(crate) core_loss: Option<(u32, u64)>,
    /// The decisions that it has met.
    pub(crate) met: Met,
}

impl Host {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            clocks: Clocks::default(),
            restarts: 0,
            is_down: false,
            runs: true,
            has_ended: false,
            main: None,
            signals: Signals::new(),
            disk: None,
            descriptors: usize::MAX,
            paused_until: 0,
            core_loss: None,
            met: Met::default(),
        }
    }
}

impl State {
    /// Returns the number of the host that has a name.
    pub(crate) fn host_named(&self, name: &str) -> Option<usize> {
        (1..self.hosts.len()).find(|&host| self.hosts[host].name == name)
    }

    /// Adds a machine, as it is described, but for its program.
    pub(crate) fn add_host(&mut self, name: String, simulation: &Simulation) {
        let (mut host, number) = (Host::new(name), self.hosts.len() as u32);
        host.descriptors = simulation.descriptors;
        let key = |class, count| Key {
            class,
            who: number,
            count,
        };
        let (clocks, skew) = (&mut host.clocks, simulation.skew as i64);
        let skew = self.vary(key(Class::Clock, 1), 0, |rng| rng.i64(-skew..=skew));
        clocks.wall = clocks.wall.wrapping_add_signed(skew);
        let drift = simulation.drift as i32;
        clocks.drift = self.vary(key(Class::Clock, 2), 0, |rng| rng.i32(-drift..=drift));
        let disk = simulation.disk.as_ref();
        let now = host.clocks.read(Clock::Wall, self.now);
        let rng = self.numbers(key(Class::Crash, 0));
        host.disk =
            disk.map(|(path, disk)| Volume::new(path.clone(), disk.clone(), now, rng, number));
        self.hosts.push(host);
    }

    /// Returns the number of the process that the calling thread's machine runs at present. No
    /// process of the system has such a number, so a call that is not simulated finds none. `None`
    /// on the machine that is not described as a host: it has that of this process.
    pub(crate) fn process(&self) -> Option<i32> {
        let host = self.host();
        let lives = self.hosts[host].restarts as usize;
        (host > 0).then_some((10_000_000 + 1_000 * lives + host) as i32)
    }

    /// Returns the calling thread's machine, and which one of its lives it has.
    pub(crate) fn life(&self) -> (usize, u32) {
        let host = self.host();
        (host, self.hosts[host].restarts)
    }

    /// Returns whether the calling thread's machine may have another descriptor.
    pub(crate) fn has_room(&self) -> bool {
        let host = self.host();
        let most = self.hosts[host].descriptors;
        most == usize::MAX || self.kernel.of_host(host).len() < most
    }

    /// Takes all cores from a machine until a moment. Its clocks go on.
    pub(crate) fn pause(&mut self, host: usize, until: u64) {
        // Without a process there is nothing to stop. The later end of two pauses counts.
        if !self.hosts[host].runs {
            return;
        }
        self.tell(Part::Asked, || {
            format!("{} stands still", self.hosts[host].name)
        });
        let paused_until = &mut self.hosts[host].paused_until;
        *paused_until = until.max(*paused_until);
        self.next_due = self.next_due.min(until);
    }

    /// Has a thread of a machine lose its core, at one of its next points.
    pub(crate) fn take_core(&mut self, host: usize, nanos: u64) {
        // Without a process there is no thread, and the next one keeps its cores.
        if !self.hosts[host].runs {
            return;
        }
        let points = self.which(100) as u32;
        self.hosts[host].core_loss = Some((points, nanos));
    }

    /// Returns whether a thread has a core, as far as its machine is concerned.
    pub(crate) fn has_core(&self, thread: usize) -> bool {
        let host = &self.hosts[self.threads[thread].host];
        host.paused_until <= self.now && !host.signals.is_stopped
    }

    /// Passes a point of a thread. Returns whether it loses its core there, by what was asked for
    /// its machine.
    pub(crate) fn loses_core(&mut self, me: usize) -> bool {
        let host = self.threads[me].host;
        match &mut self.hosts[host].core_loss {
            None => !self.has_core(me),
            Some((points @ 1.., _)) => {
                *points -= 1;
                !self.has_core(me)
            }
            Some((_, nanos)) => {
                let until = self.now.saturating_add(*nanos);
                self.hosts[host].core_loss = None;
                self.freeze(me, until);
                true
            }
        }
    }

    /// Has the thread that the caller starts next run on a machine.
    pub(crate) fn start_on(&mut self, host: usize) {
        if let Some(me) = super::me() {
            self.threads[me].next_host = Some(host);
        }
    }

    /// The program of the calling thread's machine has ended. Its process ends with its main
    /// thread.
    pub(crate) fn host_has_ended(&mut self) {
        let host = self.host();
        self.hosts[host].has_ended = true;
        self.note(|| "its program has ended".into());
        self.wake(|wait| wait == Wait::Host);
    }
}
