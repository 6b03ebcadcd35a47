//! Non-blocking sockets, driven by the epoll instance of the worker that creates them.
//!
//! The types and methods have tokio's names and use the address types of the standard library.
//! Streams implement the traits of futures-io, also for shared references: one task may read while
//! another writes. Any number of tasks may await a method that is a future. Dropping such a future
//! while it waits loses no data.
//!
//! With the feature `tokio-io`, streams and their halves also implement tokio's `AsyncRead`
//! and `AsyncWrite`. This needs no tokio runtime. Both sets of traits have methods of the same
//! names. If both are in scope, call the method by its trait, as in
//! `AsyncReadExt::read(&mut stream, …)`. The feature also adds methods that take the buffers of the
//! crate `bytes`, and lets `poll_` methods take tokio's `ReadBuf` (see [`PollBuf`]).
//!
//! A `try_` method always makes its system call, even if the socket is not known to be ready.

pub(crate) mod addr;
pub(crate) mod buf;
pub(crate) mod connection;
pub(crate) mod datagram;
pub(crate) mod options;
pub(crate) mod readiness;
pub(crate) mod split;
pub mod tcp;
#[cfg(feature = "tokio-io")]
pub(crate) mod tokio_io;
pub(crate) mod udp;
pub mod unix;

pub use self::{
    addr::{ToSocketAddrs, lookup_host},
    buf::PollBuf,
    tcp::{
        listener::TcpListener,
        per_core::PerCoreListeners,
        socket::TcpSocket,
        split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError},
        stream::TcpStream,
    },
    udp::UdpSocket,
    unix::{
        datagram::UnixDatagram, listener::UnixListener, socket::UnixSocket, stream::UnixStream,
    },
};
