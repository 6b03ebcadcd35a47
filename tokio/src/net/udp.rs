//! UDP.

use std::{
    io,
    net::SocketAddr,
    task::{Context, Poll, ready},
};

use real::io::ReadBuf;
use tourbillon::net as Inner;

use crate::net::ToSocketAddrs;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket(Inner::UdpSocket);

super::stream::socket!(UdpSocket, std::net::UdpSocket);
super::stream::derefs! { [] UdpSocket => Inner::UdpSocket; }

impl UdpSocket {
    /// Binds to the first address that is free.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Inner::UdpSocket::bind(addr).await.map(Self)
    }

    /// Receives a datagram from the connected peer.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n = ready!(self.0.poll_recv(cx, buf.initialize_unfilled()))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }

    /// Receives a datagram, and returns its sender.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let (n, from) = ready!(self.0.poll_recv_from(cx, buf.initialize_unfilled()))?;
        buf.advance(n);
        Poll::Ready(Ok(from))
    }
}
