//! Sockets, made ready for the reactor: non-blocking and close-on-exec.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, FromRawFd},
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::check;

/// How many connections may wait to be accepted: as many as the system allows, which is
/// `net.core.somaxconn`. Where there is no room, clients wait a second or more to try again.
const BACKLOG: i32 = i32::MAX;

fn tcp(addr: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))
}

/// A TCP socket that listens at `addr`, which may be one that was in use a moment ago.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = tcp(addr)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A TCP socket on its way to `addr`: connected, or refused, once it is writable.
pub(crate) fn connect(addr: SocketAddr) -> io::Result<std::net::TcpStream> {
    let socket = tcp(addr)?;
    match socket.connect(&addr.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// The next connection of a non-blocking listener. One system call: `accept4` sets both flags.
pub(crate) fn accept(
    listener: &std::net::TcpListener,
) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `try_init` gives room for any address, and its length; the descriptor is fresh, so
    // that nobody else owns it.
    let (socket, addr) = unsafe {
        SockAddr::try_init(|storage, len| {
            let fd = check(libc::accept4(
                listener.as_raw_fd(),
                storage.cast(),
                len,
                flags,
            ))?;
            Ok(Socket::from_raw_fd(fd))
        })
    }?;
    let addr = addr.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok((socket.into(), addr))
}

/// Receives into memory that need not be initialized; so many bytes of it are, afterwards.
#[cfg(feature = "hyper")]
pub(crate) fn receive(
    stream: &std::net::TcpStream,
    buf: &mut [std::mem::MaybeUninit<u8>],
) -> io::Result<usize> {
    socket2::SockRef::from(stream).recv(buf)
}
