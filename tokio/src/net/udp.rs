//! UDP.

use std::{io, net::SocketAddr};

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
}

super::datagram::receives! {
    UdpSocket, SocketAddr:
    poll_recv, poll_recv_from;
    poll_peek, poll_peek_from
}
