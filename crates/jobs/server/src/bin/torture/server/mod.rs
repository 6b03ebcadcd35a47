//! Servers of this program's own, on the loopback interface.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

use clap::ValueEnum;
use tourbillon_jobs::store::{Store, StoreError};
use tourbillon_support::{PATIENCE, dir::Dir};

#[cfg(feature = "postgres")]
pub use self::postgres::Postgres;
#[cfg(feature = "redis")]
pub use self::redis::Redis;

/// The servers that there are.
#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "redis")]
    Redis,
}

/// A running server, with a directory of its own, which is removed in the end.
pub trait Server: Sized + Send + Sync + 'static {
    /// The store on this server.
    type Store: Store;

    /// The name of the kind, as an argument.
    const NAME: &'static str;

    /// Starts a server. What it acknowledges is synced to the disk.
    ///
    /// The error is `NotFound` if the server is not installed.
    fn start() -> io::Result<Self>;

    /// Returns the port of the server.
    fn port(&self) -> u16;

    /// Kills the server with all its processes, as a crash does, and starts it again.
    fn crash(&mut self) -> io::Result<()>;

    /// Connects to a port that leads to the server, and makes the store if there is none.
    fn connect(port: u16) -> impl Future<Output = Result<Self::Store, StoreError>> + Send;
}

/// Returns a free port. The servers cannot choose a free port themselves, so this function takes
/// one and gives it back.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
