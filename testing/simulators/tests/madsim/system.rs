//! What the programs with planted bugs need, by madsim.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, SystemTime},
};

pub use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use madsim::{
    Config,
    net::NetSim,
    runtime::{Handle, NodeBuilder, Runtime},
};
pub use madsim::{
    net::{TcpListener, TcpStream},
    task::spawn,
    time::{sleep, timeout},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
pub use tokio::{io::AsyncReadExt, sync::Notify};

use crate::programs::Sim;

/// A socket of madsim sends what was written when it is flushed.
pub trait AsyncWriteExt {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl AsyncWriteExt for TcpStream {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        tokio::io::AsyncWriteExt::write_all(self, bytes).await?;
        tokio::io::AsyncWriteExt::flush(self).await
    }
}

/// Adds a host to a simulation.
type AddHost = Box<dyn FnOnce(NodeBuilder<'_>, UnboundedSender<io::Result<()>>)>;

/// A description, from which the simulation is built at the end: its network comes first.
#[derive(Default)]
pub struct Description {
    hosts: Vec<(&'static str, AddHost)>,
    clients: usize,
    is_late: bool,
}

impl Sim for Description {
    fn host<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        let add: AddHost = Box::new(move |node, _| drop(node.init(start).build()));
        self.hosts.push((name, add));
    }

    fn client<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        self.clients += 1;
        let add: AddHost = Box::new(move |node, ends| {
            let run = move || {
                let (program, ends) = (start(), ends.clone());
                async move { _ = ends.send(program.await) }
            };
            drop(node.init(run).build());
        });
        self.hosts.push((name, add));
    }

    fn be_late(&mut self) {
        self.is_late = true;
    }

    // Each host has a file system.
    fn have_disks(&mut self) {}
}

impl Description {
    /// Runs a seed. It panics if the seed fails.
    pub fn run(self, seed: u64) {
        let mut config = Config::default();
        if self.is_late {
            config.net.send_latency = Duration::from_millis(1)..Duration::from_millis(300);
        }
        let mut runtime = Runtime::with_seed_and_config(seed, config);
        runtime.set_time_limit(Duration::from_secs(120));
        runtime.block_on(async move {
            let (sender, mut ends) = unbounded_channel();
            let simulation = Handle::current();
            for (number, (name, add)) in (1..).zip(self.hosts) {
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, number));
                NetSim::current().add_dns_record(name, address);
                let node = simulation.create_node().name(name).ip(address);
                add(node, sender.clone());
            }
            for _ in 0..self.clients {
                let end = ends.recv().await.expect("the senders are with the hosts");
                end.expect("a client fails");
            }
        });
    }
}

/// Does nothing: no program with a disk runs here.
pub fn mount(_: &str) {}

pub fn sync_names(_: &str) -> io::Result<()> {
    unimplemented!("its files are for asynchronous calls only")
}

pub async fn crash(name: &str) {
    Handle::current().kill(name);
}

pub async fn restart(name: &str) {
    Handle::current().restart(name);
}

pub fn random() -> u64 {
    madsim::rand::random()
}

pub fn now() -> SystemTime {
    SystemTime::now()
}

pub fn set_clock(_: &str, _: SystemTime) {
    unimplemented!("its wall clock cannot be set")
}
