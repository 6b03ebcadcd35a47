//! UDP sockets for quinn. `quinn-udp` makes the system calls.

use std::{
    fmt,
    future::Future,
    io::{self, ErrorKind, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit, UdpSocketState},
};
use tourbillon::io::{AsyncFd, Interest};

#[derive(Debug)]
pub(super) struct Socket {
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
}

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        // This sets the options for GRO and ECN, and makes the socket non-blocking.
        let state = UdpSocketState::new((&socket).into())?;
        let socket = AsyncFd::new(socket)?;
        Ok(Self { socket, state })
    }

    /// Returns whether the socket was writable at its last event and no send has found it full
    /// since.
    fn has_room(&self) -> io::Result<bool> {
        let ready = self.socket.last_readiness(Interest::WRITABLE)?;
        Ok(ready.is_writable())
    }

    async fn writable(self: Arc<Self>) -> io::Result<()> {
        self.socket.writable().await.map(drop)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            socket: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let send = |socket: &UdpSocket| self.state.send(socket.into(), transmit);
        self.socket.try_io(Interest::WRITABLE, send)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let received = guard.try_io(|fd| self.state.recv(fd.get_ref().into(), bufs, meta));
            match received {
                // A signal came first, or a connected socket reports that a packet did not reach
                // its peer. The endpoint would end by it, but a lost packet is no reason to.
                Ok(Err(error))
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionRefused | ErrorKind::Interrupted
                    ) => {}
                Ok(received) => return Poll::Ready(received),
                Err(_would_block) => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// The wait of one connection until the socket has room.
struct Poller {
    socket: Arc<Socket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, waiting } = &mut *self;
        // A connection asks before each packet, and nearly always there is room.
        if waiting.is_none() && socket.has_room()? {
            return Poll::Ready(Ok(()));
        }
        // Each connection waits by a future of its own, since any number of them may wait.
        let wait = waiting.get_or_insert_with(|| Box::pin(socket.clone().writable()));
        let result = ready!(wait.as_mut().poll(cx));
        *waiting = None;
        Poll::Ready(result)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Poller").field(&self.socket).finish()
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
