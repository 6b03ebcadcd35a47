//! What the programs with planted bugs need, by turmoil.

use std::{
    cell::RefCell,
    future::Future,
    io,
    time::{Duration, SystemTime},
};

pub use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
pub use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    spawn,
    sync::Notify,
    time::{sleep, timeout},
};
pub use turmoil::{
    fs::shim::std::fs::{self, create_dir_all, sync_dir as sync_names},
    net::{TcpListener, TcpStream},
};

use crate::programs::Sim;

/// What a program asks of the simulation, which turmoil does between two steps only.
enum Order {
    Crash(String),
    Restart(String),
}

thread_local! {
    static ORDERS: RefCell<Vec<Order>> = const { RefCell::new(Vec::new()) };
    static RNG: RefCell<fastrand::Rng> =
        const { RefCell::new(fastrand::Rng::with_seed(0)) };
}

/// Adds a host to a simulation.
type AddHost = Box<dyn FnOnce(&mut turmoil::Sim<'static>)>;

/// A description, from which turmoil's simulation is built at the end: its network comes first.
#[derive(Default)]
pub struct Description {
    hosts: Vec<AddHost>,
    is_late: bool,
}

impl Sim for Description {
    fn host<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        self.hosts.push(Box::new(move |sim| {
            sim.host(name, move || {
                let program = start();
                async move { Ok(program.await?) }
            });
        }));
    }

    fn client<F, Fut>(&mut self, name: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        self.hosts.push(Box::new(move |sim| {
            sim.client(name, async move { Ok(start().await?) });
        }));
    }

    fn be_late(&mut self) {
        self.is_late = true;
    }

    // Each host has a file system.
    fn have_disks(&mut self) {}
}

impl Description {
    /// Runs a seed. Returns what turmoil says of its failure.
    pub fn run(self, seed: u64) -> Result<(), String> {
        RNG.set(fastrand::Rng::with_seed(seed));
        ORDERS.take();
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(seed)
            .enable_random_order()
            .simulation_duration(Duration::from_secs(120));
        if self.is_late {
            builder.max_message_latency(Duration::from_millis(300));
        }
        let mut sim = builder.build();
        for host in self.hosts {
            host(&mut sim);
        }
        loop {
            match sim.step() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error.to_string()),
            }
            for order in ORDERS.take() {
                match order {
                    Order::Crash(name) => sim.crash(name),
                    Order::Restart(name) => sim.bounce(name),
                }
            }
        }
    }
}

/// Makes the directory, which a new host has not, and keeps it in a crash.
pub fn mount(path: &str) {
    create_dir_all(path).expect("it has a file system");
    sync_names("/").expect("it has a root");
}

async fn ask(order: Order) {
    ORDERS.with_borrow_mut(|orders| orders.push(order));
    // It is done when the present step of turmoil is over.
    sleep(Duration::from_millis(2)).await;
}

pub async fn crash(name: &str) {
    ask(Order::Crash(name.into())).await;
}

pub async fn restart(name: &str) {
    ask(Order::Restart(name.into())).await;
}

pub fn random() -> u64 {
    RNG.with_borrow_mut(|rng| rng.u64(..))
}

pub fn now() -> SystemTime {
    unimplemented!("turmoil has no wall clock")
}

pub fn set_clock(_: &str, _: SystemTime) {
    unimplemented!("turmoil has no wall clock")
}
