//! Sockets, by Tourbillon, with tokio's traits for reading and writing.
//!
//! Each type wraps one of Tourbillon. It has tokio's methods itself (see `forward.rs`), and
//! dereferences to what it wraps for Tourbillon's others.

mod datagram;
pub(crate) mod stream;
pub mod tcp;
mod udp;
pub mod unix;

pub use tourbillon::net::{ToSocketAddrs, lookup_host};

pub use self::{
    tcp::{TcpListener, TcpSocket, TcpStream},
    udp::UdpSocket,
    unix::{UnixDatagram, UnixListener, UnixSocket, UnixStream},
};
