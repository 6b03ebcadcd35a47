//! Sockets, on the epoll instance of the worker that they were made on.
//!
//! The names are tokio's, with the addresses of the standard library. The traits are futures-io's; a
//! stream is also read and written through a shared reference, by one task in each direction at a
//! time. Methods that are futures may be waited for by any number of tasks, and can be dropped while they
//! wait: nothing is lost, and the next one works.
//!
//! With feature `tokio-io`, streams and their owned halves also have tokio's `AsyncRead` and `AsyncWrite`, for
//! code that is generic over those; no runtime of tokio's is needed. Where both
//! traits are imported say which is meant, as in `AsyncReadExt::read(&mut stream, …)`; and, of a whole stream,
//! `AsyncWriteExt::shutdown(&mut stream)`, since it has a [`shutdown`](TcpStream::shutdown) of its own.
//!
//! A `try_` method asks the system at once, whatever is known of the socket.

pub(crate) mod addr;
pub(crate) mod connection;
pub(crate) mod datagram;
pub(crate) mod readiness;
pub(crate) mod split;
pub mod tcp;
pub(crate) mod udp;
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
