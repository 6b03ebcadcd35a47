//! The machines of a simulation.

use std::path::PathBuf;

use super::{
    State, Wait,
    clocks::{Clock, Clocks},
    disk::Volume,
};
use crate::disk::Disk;

/// A machine.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) clocks: Clocks,
    /// It has crashed.
    pub(crate) is_down: bool,
    /// Its program has ended.
    pub(crate) has_ended: bool,
    pub(crate) disk: Option<Volume>,
}

impl Host {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            clocks: Clocks::default(),
            is_down: false,
            has_ended: false,
            disk: None,
        }
    }
}

impl State {
    /// Returns the number of the host that has a name.
    pub(crate) fn host_named(&self, name: &str) -> Option<usize> {
        (1..self.hosts.len()).find(|&host| self.hosts[host].name == name)
    }

    pub(crate) fn add_host(&mut self, name: String, disk: Option<&(PathBuf, Disk)>) {
        let (mut host, number) = (Host::new(name), self.hosts.len() as u32);
        let now = host.clocks.read(Clock::Wall, self.now);
        host.disk = disk.map(|(path, disk)| {
            Volume::new(path.clone(), disk.clone(), now, self.rng.fork(), number)
        });
        self.hosts.push(host);
    }

    /// Has the thread that the caller starts next run on a machine.
    pub(crate) fn start_on(&mut self, host: usize) {
        if let Some(me) = super::me() {
            self.threads[me].next_host = Some(host);
        }
    }

    /// The program of the calling thread's machine has ended.
    pub(crate) fn host_has_ended(&mut self) {
        let host = self.host();
        self.hosts[host].has_ended = true;
        self.note(|| "its program has ended".into());
        self.wake(|wait| wait == Wait::Host);
    }
}
