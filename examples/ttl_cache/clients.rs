//! The connected clients: their limit, and what `CLIENT LIST` shows.

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

/// All clients, by id.
#[derive(Debug, Default)]
pub struct Clients(Mutex<BTreeMap<u64, Arc<Peer>>>);

impl Clients {
    /// Returns the connected clients in the order in which they came.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Peer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's place among the maximum number of clients. Dropping it frees the place.
pub struct Client {
    pub server: Arc<Server>,
    pub peer: Arc<Peer>,
}

impl Client {
    /// Takes a place for a client. Returns `None` if all are taken.
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

/// A connected client, as `CLIENT LIST` shows it.
#[derive(Debug)]
pub struct Peer {
    pub id: u64,
    addr: SocketAddr,
    /// `None` if the system did not return it.
    local_addr: Option<SocketAddr>,
    descriptor: i32,
    since: Instant,
    /// Time of the last reply, in seconds after `since`.
    active_after: AtomicU64,
    /// Index of the last command in the table of commands; a larger number if there was none.
    command: AtomicUsize,
    about: Mutex<About>,
}

/// The description that a client sent about itself.
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

    /// Returns the client's line of `CLIENT LIST`, with those fields of redis that this server has.
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

/// Returns a field as text. It is ASCII.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
