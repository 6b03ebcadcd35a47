//! UDP.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    task::{Context, Poll},
};

use tourbillon::{
    io::{Interest, Ready},
    net as Inner,
};

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
        crate::context::bound(Inner::UdpSocket::bind(addr).await).map(Self)
    }
}

super::datagram::receives! {
    UdpSocket, SocketAddr:
    poll_recv, poll_recv_from;
    poll_peek, poll_peek_from
}

super::datagram::datagrams! { UdpSocket, SocketAddr }
super::stream::tos!(UdpSocket);
crate::forward::forward! {
    [] UdpSocket:
    fn bind_device(interface: Option<&[u8]>) -> io::Result<()>;
    fn broadcast() -> io::Result<bool>;
    fn device() -> io::Result<Option<Vec<u8>>>;
    fn join_multicast_v4(group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()>;
    fn join_multicast_v6(group: &Ipv6Addr, interface: u32) -> io::Result<()>;
    fn leave_multicast_v4(group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()>;
    fn leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> io::Result<()>;
    fn multicast_loop_v4() -> io::Result<bool>;
    fn multicast_loop_v6() -> io::Result<bool>;
    fn multicast_ttl_v4() -> io::Result<u32>;
    fn poll_peek_sender(cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>>;
    fn poll_send_to(
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>>;
    fn set_broadcast(on: bool) -> io::Result<()>;
    fn set_multicast_loop_v4(on: bool) -> io::Result<()>;
    fn set_multicast_loop_v6(on: bool) -> io::Result<()>;
    fn set_multicast_ttl_v4(ttl: u32) -> io::Result<()>;
    fn set_tclass_v6(tclass: u32) -> io::Result<()>;
    fn set_tos_v4(tos: u32) -> io::Result<()>;
    fn set_ttl(ttl: u32) -> io::Result<()>;
    fn tclass_v6() -> io::Result<u32>;
    fn tos_v4() -> io::Result<u32>;
    fn try_peek(buf: &mut [u8]) -> io::Result<usize>;
    fn try_peek_from(buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    fn try_peek_sender() -> io::Result<SocketAddr>;
    fn try_send_to(buf: &[u8], addr: SocketAddr) -> io::Result<usize>;
    fn ttl() -> io::Result<u32>;
    async {
        fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<()>;
        fn peek(buf: &mut [u8]) -> io::Result<usize>;
        fn peek_from(buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
        fn peek_sender() -> io::Result<SocketAddr>;
        fn send_to<A: ToSocketAddrs>(buf: &[u8], addr: A) -> io::Result<usize>;
    }
}
