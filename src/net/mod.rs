//! Sockets, on the epoll instance of the worker that they were made on.
//!
//! The names are tokio's, with the addresses of the standard library. The traits are futures-io's; a
//! stream is also read and written through a shared reference, by one task in each direction at a
//! time. Methods that are futures may be waited for by any number of tasks, and can be dropped while they
//! wait: nothing is lost, and the next one works.
//!
//! A `try_` method asks the system at once, whatever is known of the socket.

mod addr;
mod connection;
mod datagram;
mod readiness;
mod split;
pub mod tcp;
mod udp;
pub mod unix;

pub use self::{
    tcp::{
        listener::TcpListener,
        per_core::PerCoreListeners,
        socket::TcpSocket,
        split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError},
        stream::TcpStream,
    },
    udp::UdpSocket,
    unix::{datagram::UnixDatagram, listener::UnixListener, stream::UnixStream},
};
