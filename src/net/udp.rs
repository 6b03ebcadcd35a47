//! Datagrams over UDP.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket as Std},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll},
};

use super::{
    addr::{first, try_each},
    datagram::datagrams,
    readiness::{readiness, socket},
};
use crate::{
    io::{Interest, Ready},
    reactor::{Direction, Registration},
    sys::socket,
};

/// A UDP socket.
///
/// All methods take a shared reference: to send and to receive in different tasks, share it in an
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
    /// Binds a socket to an address; port 0 is one that the system chooses. Of several addresses it is
    /// the first that can be bound.
    ///
    /// A name is looked up on the calling thread, which that may block; an address is not.
    ///
    /// # Errors
    ///
    /// What the system says, the last if there were several addresses, and if there is no runtime.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        try_each(addr, async |addr| Self::from_std(Std::bind(addr)?)).await
    }

    /// Connects the socket to an address: [`send`](UdpSocket::send) goes there, and datagrams of others
    /// are not received any more. Of several addresses it is the first that there is a way to.
    ///
    /// A name is looked up on the calling thread, which that may block; an address is not.
    ///
    /// # Errors
    ///
    /// What the system says, the last if there were several addresses.
    pub async fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        try_each(addr, async |addr| self.0.get().connect(addr)).await
    }

    /// Sends a datagram to an address (of several, the first), and answers how long it was. Any number
    /// of tasks may wait.
    ///
    /// A name is looked up on the calling thread, which that may block; an address is not.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub async fn send_to(&self, buf: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = first(addr)?;
        self.0
            .io(Direction::Write, |socket| socket.send_to(buf, addr))
            .await
    }

    /// As [`send_to`](UdpSocket::send_to), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, and else what the system says.
    pub fn try_send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.0
            .try_once(Direction::Write, |socket| socket.send_to(buf, addr))
    }

    /// As [`send_to`](UdpSocket::send_to), for those who write futures by hand. One task at a time.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let send = |socket: &Std| socket.send_to(buf, addr);
        self.0.poll_io(cx, Direction::Write, send, |_| false)
    }

    /// As [`recv`](UdpSocket::recv), and leaves the datagram there for the next.
    ///
    /// # Errors
    ///
    /// As for [`recv`](UdpSocket::recv).
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, |socket| socket.peek(buf)).await
    }

    /// As [`peek`](UdpSocket::peek), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there, and else as for [`recv`](UdpSocket::recv).
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_once(Direction::Read, |socket| socket.peek(buf))
    }

    /// As [`peek`](UdpSocket::peek), for those who write futures by hand. One task at a time.
    ///
    /// # Errors
    ///
    /// As for [`recv`](UdpSocket::recv).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0
            .poll_io(cx, Direction::Read, |socket| socket.peek(buf), |_| false)
    }

    /// As [`recv_from`](UdpSocket::recv_from), and leaves the datagram there for the next.
    ///
    /// # Errors
    ///
    /// As for [`recv`](UdpSocket::recv).
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0
            .io(Direction::Read, |socket| socket.peek_from(buf))
            .await
    }

    /// As [`peek_from`](UdpSocket::peek_from), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there, and else as for [`recv`](UdpSocket::recv).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0
            .try_once(Direction::Read, |socket| socket.peek_from(buf))
    }

    /// As [`peek_from`](UdpSocket::peek_from), for those who write futures by hand. One task at a time.
    ///
    /// # Errors
    ///
    /// As for [`recv`](UdpSocket::recv).
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(
            cx,
            Direction::Read,
            |socket| socket.peek_from(buf),
            |_| false,
        )
    }

    /// Who sent the datagram that is next; it is left there.
    ///
    /// # Errors
    ///
    /// As for [`recv`](UdpSocket::recv).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.0.io(Direction::Read, socket::peek_sender).await
    }

    /// As [`peek_sender`](UdpSocket::peek_sender), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there, and else as for [`recv`](UdpSocket::recv).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.0.try_once(Direction::Read, socket::peek_sender)
    }

    /// As [`peek_sender`](UdpSocket::peek_sender), for those who write futures by hand. One task at a time.
    ///
    /// # Errors
    ///
    /// As for [`recv`](UdpSocket::recv).
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.0
            .poll_io(cx, Direction::Read, socket::peek_sender, |_| false)
    }
}

/// Options. Each method's errors are what the system says.
impl UdpSocket {
    /// Whether datagrams may be sent to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.get().broadcast()
    }

    /// Sets [`broadcast`](UdpSocket::broadcast).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.0.get().set_broadcast(on)
    }

    /// How many routers a datagram may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets [`ttl`](UdpSocket::ttl).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }

    /// Whether what is sent to a multicast group is received on this machine, too (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v4()
    }

    /// Sets [`multicast_loop_v4`](UdpSocket::multicast_loop_v4).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v4(on)
    }

    /// How many routers a datagram to a multicast group may pass (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.get().multicast_ttl_v4()
    }

    /// Sets [`multicast_ttl_v4`](UdpSocket::multicast_ttl_v4).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_multicast_ttl_v4(ttl)
    }

    /// Whether what is sent to a multicast group is received on this machine, too (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v6()
    }

    /// Sets [`multicast_loop_v6`](UdpSocket::multicast_loop_v6).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v6(on)
    }

    /// Receives what is sent to a multicast group, on an interface (by its address; the unspecified one lets the system choose).
    ///
    /// # Errors
    ///
    /// What the system says.
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

    /// Undoes [`join_multicast_v4`](UdpSocket::join_multicast_v4).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get().leave_multicast_v4(&group, &interface)
    }

    /// Receives what is sent to a multicast group, on an interface (by its index; 0 lets the system choose).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().join_multicast_v6(group, interface)
    }

    /// Undoes [`join_multicast_v6`](UdpSocket::join_multicast_v6).
    ///
    /// # Errors
    ///
    /// What the system says.
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
datagrams!(UdpSocket, Std, SocketAddr);
