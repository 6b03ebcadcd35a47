//! The clients that are connected: how many there may be, and what `CLIENT LIST` tells of them.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
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
    pub fn enter(server: &Arc<Server>, stream: &TcpStream, id: u64) -> Option<Self> {
        let most = server.options.max_clients;
        if !server.stats.clients.add_up_to(1, most) {
            return None;
        }
        let peer = Arc::new(Peer {
            id,
            addr: stream.peer_addr().ok(),
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
    /// Unknown if the connection was reset before it was looked at.
    addr: Option<SocketAddr>,
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

    /// Returns the line of `CLIENT LIST`, with the fields that redis has and this server has something to say of.
    pub fn line(&self, command_name: impl Fn(usize) -> &'static str) -> String {
        let age = self.since.elapsed().as_secs();
        let idle = age.saturating_sub(self.active_after.load(Relaxed));
        let about = self.about();
        format!(
            "id={} addr={} laddr={} fd={} name={} age={age} idle={idle} flags=N db=0 sub=0 psub=0 \
             multi=-1 cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id,
            Known(self.addr),
            Known(self.local_addr),
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
    str::from_utf8(bytes).unwrap_or_default()
}

/// An address, or nothing.
struct Known(Option<SocketAddr>);

impl Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |addr| addr.fmt(f))
    }
}
