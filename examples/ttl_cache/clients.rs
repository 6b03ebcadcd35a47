//! The clients that are connected: how many there may be, and what `CLIENT LIST` tells of them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use tourbillon::{net::TcpStream, time::Instant};

use crate::Server;

/// All clients, by their numbers.
#[derive(Debug, Default)]
pub struct Clients(Mutex<BTreeMap<u64, Arc<Peer>>>);

impl Clients {
    /// Returns those that are connected, in the order in which they came.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Peer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's place among those that there may be. It is free again when this is dropped.
pub struct Client {
    pub server: Arc<Server>,
    pub peer: Arc<Peer>,
}

impl Client {
    /// Counts a client in, unless there are as many as there may be.
    pub fn enter(
        server: &Arc<Server>,
        stream: &TcpStream,
        addr: SocketAddr,
        id: u64,
    ) -> Option<Self> {
        let most = server.options.max_clients;
        if !server.stats.clients.add_up_to(1, most) {
            return None;
        }
        let peer = Arc::new(Peer {
            id,
            addr,
            local_addr: stream.local_addr().ok(),
            descriptor: stream.as_raw_fd(),
            since: Instant::now(),
            active_after: AtomicU64::new(0),
            command: AtomicUsize::new(usize::MAX),
            about: Mutex::default(),
        });
        server.clients.lock().insert(id, peer.clone());
        let server = server.clone();
        Some(Self { server, peer })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.server.clients.lock().remove(&self.peer.id);
        self.server.stats.clients.sub(1);
    }
}

/// What others may know of a client.
#[derive(Debug)]
pub struct Peer {
    pub id: u64,
    addr: SocketAddr,
    /// `None` if the system did not say.
    local_addr: Option<SocketAddr>,
    descriptor: i32,
    since: Instant,
    /// When it was last sent replies: so many seconds after `since`.
    active_after: AtomicU64,
    /// The index of its last command among all commands; a larger number if there was none.
    command: AtomicUsize,
    about: Mutex<About>,
}

/// What a client says of itself.
#[derive(Debug, Default)]
pub struct About {
    pub name: Vec<u8>,
    pub library: Vec<u8>,
    pub library_version: Vec<u8>,
    pub resp3: bool,
}

impl Peer {
    pub fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn runs(&self, command: usize) {
        self.command.store(command, Relaxed);
    }

    pub fn was_answered(&self) {
        let after = self.since.elapsed().as_secs();
        self.active_after.store(after, Relaxed);
    }

    /// Returns the line of `CLIENT LIST`, with the fields that redis has and this server has
    /// something to say of.
    pub fn line(&self, command_name: impl Fn(usize) -> &'static str) -> String {
        let age = self.since.elapsed().as_secs();
        let idle = age.saturating_sub(self.active_after.load(Relaxed));
        let local_addr = self.local_addr.map(|addr| addr.to_string());
        let about = self.about();
        format!(
            "id={} addr={} laddr={} fd={} name={} age={age} idle={idle} flags=N db=0 sub=0 psub=0 \
             multi=-1 cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.addr,
            local_addr.unwrap_or_default(),
            self.descriptor,
            text(&about.name),
            command_name(self.command.load(Relaxed)),
            if about.resp3 { 3 } else { 2 },
            text(&about.library),
            text(&about.library_version),
        )
    }
}

/// What a client said, which is ASCII.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
