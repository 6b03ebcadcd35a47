//! UDP sockets.

use std::{
    future::ready,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as Std},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll},
};

use super::{
    addr::{ToSocketAddrs, first, try_each},
    buf::PollBuf,
    datagram::{datagrams, receives},
    options::{ip_options, options},
    readiness::{readiness, socket},
};
use crate::{
    engine::registration::Registration,
    io::{Interest, Ready},
    reactor::Direction,
    sys::socket,
};

/// A UDP socket.
///
/// All methods take `&self`. To send and receive in different tasks, share the socket in an
/// [`Arc`](std::sync::Arc).
///
/// ```
/// use tourbillon::net::UdpSocket;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let server = UdpSocket::bind("127.0.0.1:0").await?;
/// let addr = server.local_addr()?;
/// tourbillon::spawn(async move {
///     let mut buf = [0; 1500];
///     loop {
///         let (n, peer) = server.recv_from(&mut buf).await?;
///         server.send_to(&buf[..n], peer).await?;
///     }
///     # #[allow(unreachable_code)]
///     # std::io::Result::Ok(())
/// });
///
/// let client = UdpSocket::bind("127.0.0.1:0").await?;
/// client.connect(addr).await?;
/// client.send(b"hello").await?;
/// let mut buf = [0; 100];
/// let n = client.recv(&mut buf).await?;
/// assert_eq!(&buf[..n], b"hello");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UdpSocket(Registration<Std>);

impl UdpSocket {
    /// Binds a socket to an address. With port 0 the system chooses the port. If there are several
    /// addresses, the first one that can be bound is used.
    ///
    /// A host name is resolved as by [`lookup_host`](crate::net::lookup_host).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime. If every address
    /// fails, this is the last error.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let bind = |addr| Self::from_std(Std::bind(addr)?);
        try_each(addr, |addr| ready(bind(addr))).await
    }

    /// Connects the socket to a peer. [`send`](UdpSocket::send) then sends to this peer, and
    /// datagrams of other senders are dropped. If there are several addresses, the first one that
    /// has a route is used.
    ///
    /// A host name is resolved as by [`lookup_host`](crate::net::lookup_host).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error. If every address fails, this is the last error.
    pub async fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        try_each(addr, |addr| ready(self.0.get().connect(addr))).await
    }

    /// Sends a datagram to `addr`, and returns the number of bytes sent. If there are several
    /// addresses, the first one is used. Any number of tasks may wait.
    ///
    /// A host name is resolved as by [`lookup_host`](crate::net::lookup_host).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let addr = first(addr).await?;
        self.0
            .io(Direction::Write, |socket| socket.send_to(buf, addr))
            .await
    }

    /// Attempts [`send_to`](UdpSocket::send_to) once, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, otherwise the operating system's error.
    pub fn try_send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.0
            .try_once(Direction::Write, |socket| socket.send_to(buf, addr))
    }

    /// Attempts [`send_to`](UdpSocket::send_to) from a `poll` function. Only the last task to poll
    /// is woken.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let send = |socket: &Std| socket.send_to(buf, addr);
        self.0.poll_io(cx, Direction::Write, send, |_| false)
    }

    /// Returns the sender of the next datagram without removing it from the queue.
    ///
    /// # Errors
    ///
    /// See [`recv`](UdpSocket::recv).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.0.io(Direction::Read, socket::peek_sender).await
    }

    /// Attempts [`peek_sender`](UdpSocket::peek_sender) once, without waiting.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if there is no datagram, otherwise see [`recv`](UdpSocket::recv).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.0.try_once(Direction::Read, socket::peek_sender)
    }

    /// Attempts [`peek_sender`](UdpSocket::peek_sender) from a `poll` function. Only the last task
    /// to poll is woken.
    ///
    /// # Errors
    ///
    /// See [`recv`](UdpSocket::recv).
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.0
            .poll_io(cx, Direction::Read, socket::peek_sender, |_| false)
    }
}

receives! {
    UdpSocket, Std, SocketAddr,
    /// Receives a datagram without removing it from the queue. See [`recv`](UdpSocket::recv).
    ///
    /// # Errors
    ///
    /// See [`recv`](UdpSocket::recv).
    peek, try_peek, poll_peek,
    /// Receives a datagram and its sender's address without removing it from the queue. See
    /// [`recv_from`](UdpSocket::recv_from).
    ///
    /// # Errors
    ///
    /// See [`recv`](UdpSocket::recv).
    peek_from, try_peek_from, poll_peek_from
}

options! {
    UdpSocket, |it|

    /// Returns whether the socket may send to broadcast addresses (`SO_BROADCAST`).
    broadcast() = it.0.get().broadcast();
    set_broadcast(on: bool) = it.0.get().set_broadcast(on);

    /// Returns the number of routers a datagram may pass (`IP_TTL`).
    ttl() = it.0.get().ttl();
    set_ttl(ttl: u32) = it.0.get().set_ttl(ttl);

    /// Returns whether multicast datagrams are also delivered on this machine
    /// (`IP_MULTICAST_LOOP`).
    multicast_loop_v4() = it.0.get().multicast_loop_v4();
    set_multicast_loop_v4(on: bool) = it.0.get().set_multicast_loop_v4(on);

    /// Returns the number of routers a multicast datagram may pass (`IP_MULTICAST_TTL`).
    multicast_ttl_v4() = it.0.get().multicast_ttl_v4();
    set_multicast_ttl_v4(ttl: u32) = it.0.get().set_multicast_ttl_v4(ttl);

    /// Returns whether multicast datagrams are also delivered on this machine
    /// (`IPV6_MULTICAST_LOOP`).
    multicast_loop_v6() = it.0.get().multicast_loop_v6();
    set_multicast_loop_v6(on: bool) = it.0.get().set_multicast_loop_v6(on);
}

/// Multicast groups.
impl UdpSocket {
    /// Joins a multicast group on the interface with the given address. With the unspecified
    /// address the system chooses the interface.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tourbillon::net::UdpSocket;
    ///
    /// # async fn example() -> std::io::Result<()> {
    /// let socket = UdpSocket::bind("0.0.0.0:5353").await?;
    /// socket.join_multicast_v4(Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::UNSPECIFIED)?;
    /// let (n, from) = socket.recv_from(&mut [0; 9000]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get().join_multicast_v4(&group, &interface)
    }

    /// Leaves a multicast group. See [`join_multicast_v4`](UdpSocket::join_multicast_v4).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get().leave_multicast_v4(&group, &interface)
    }

    /// Joins a multicast group on the interface with the given index. With index 0 the system
    /// chooses the interface.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().join_multicast_v6(group, interface)
    }

    /// Leaves a multicast group. See [`join_multicast_v6`](UdpSocket::join_multicast_v6).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().leave_multicast_v6(group, interface)
    }
}

socket!(UdpSocket, Std);
readiness!(
    UdpSocket,
    poll_recv_ready,
    poll_send_ready,
    try_recv,
    try_send
);
ip_options!(UdpSocket);
datagrams!(UdpSocket, Std, SocketAddr, socket::ip_addr);
