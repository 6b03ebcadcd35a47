//! What the programs with planted bugs need, by shuttle.

use std::{future::Future, io, time::Duration};

use shuttle::future::{JoinHandle, block_on, spawn_local, yield_now};
pub use shuttle::{
    future::spawn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

pub use crate::absent::{
    Notify, crash, fs, mount, now, random, restart, set_clock, sync_names, timeout,
};
use crate::programs::Sim;
use crate::sockets::reset;
pub use crate::sockets::{AsyncReadExt, AsyncWriteExt, TcpListener, TcpStream};

/// Starts a host or a client, as a task.
type Start = Box<dyn FnOnce() -> JoinHandle<io::Result<()>>>;

/// A description of tasks, each of which may run beside all others, as on threads.
#[derive(Default)]
pub struct Description {
    hosts: Vec<Start>,
    clients: Vec<Start>,
}

impl Sim for Description {
    fn host<F, Fut>(&mut self, _: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        self.hosts.push(Box::new(move || spawn_local(start())));
    }

    fn client<F, Fut>(&mut self, _: &'static str, start: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        self.clients.push(Box::new(move || spawn_local(start())));
    }

    // No program that asks for one of these runs here.
    fn be_late(&mut self) {}

    fn have_disks(&mut self) {}
}

impl Description {
    /// Runs in a schedule until all clients have ended.
    pub fn run(self) {
        reset();
        for host in self.hosts {
            drop(host());
        }
        let clients: Vec<_> = self.clients.into_iter().map(|start| start()).collect();
        for client in clients {
            let end = block_on(client).expect("nobody aborts it");
            end.expect("a client fails");
        }
    }
}

/// Ends when the scheduler wants it.
pub async fn sleep(_: Duration) {
    yield_now().await;
}
