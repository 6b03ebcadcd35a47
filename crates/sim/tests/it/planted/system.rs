//! What the programs with planted bugs need, by this simulation.

use std::{future::Future, io, time::SystemTime};

pub use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

pub use futures_lite::{AsyncReadExt, AsyncWriteExt};
pub use tourbillon::{
    net::{TcpListener, TcpStream},
    spawn,
    sync::Notify,
    time::{sleep, timeout},
};
use tourbillon_sim::{Disk, Network, Simulation};
pub use tourbillon_sim::{random, set_clock};

use super::programs::Sim;

impl Sim for Simulation {
    fn host<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        Simulation::host(self, name, start);
    }

    fn client<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        Simulation::client(self, name, start);
    }

    fn be_late(&mut self) {
        // A segment that is lost comes 200 ms later.
        let mut network = Network::new();
        network.loss(0.05);
        self.network(network);
    }

    fn have_disks(&mut self) {
        self.disk("/data", Disk::new());
    }
}

pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Does nothing: the disk is there.
pub fn mount(_: &str) {}

pub fn sync_names(path: &str) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

pub async fn crash(name: &str) {
    tourbillon_sim::crash(name);
}

pub async fn restart(name: &str) {
    tourbillon_sim::restart(name);
}
