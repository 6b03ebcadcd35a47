//! Sockets for the reactor: non-blocking and close-on-exec.

use std::{
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd},
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr as UnixAddr, UnixListener, UnixStream},
        },
    },
    path::Path,
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::check;

/// The number of connections that may wait to be accepted: as many as the system allows
/// (`net.core.somaxconn`). If the queue is full, clients wait for a second or more before they try
/// again.
const BACKLOG: i32 = i32::MAX;

/// Creates a TCP socket that is neither bound nor connected.
pub(crate) fn tcp(domain: Domain) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    Socket::new(domain, kind, Some(Protocol::TCP))
}

/// Creates a TCP socket that listens at `addr`. The address may have been in use a moment ago.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = tcp(Domain::for_address(addr))?;
    // Without this, a restarted server could not bind while old connections are in `TIME_WAIT`.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Assigns connections to sockets of a `SO_REUSEPORT` group by core.
///
/// A connection whose first packet was handled by core `cores[n]` goes to socket `n` of the group.
/// Connections of other cores are spread as without this program.
pub(crate) fn steer_by_core(listener: &impl AsFd, cores: &[usize]) -> io::Result<()> {
    let program = steering_program(cores);
    let program = libc::sock_fprog {
        len: program
            .len()
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program and its instructions are valid during the call, in which the kernel
    // copies them without a write.
    check(unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Returns the BPF program that chooses the socket for a new connection. It returns a position in
/// the group. If no socket has this position, the kernel chooses.
fn steering_program(cores: &[usize]) -> Vec<libc::sock_filter> {
    let step = |code: u32, jump_if_not: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k,
    };
    let ret = |k| step(libc::BPF_RET | libc::BPF_K, 0, k);
    let core = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, core)];
    // Worker `n` on core `n`: the core's number is the position, without a table.
    if cores.iter().copied().eq(0..cores.len()) {
        program.push(step(libc::BPF_RET | libc::BPF_A, 0, 0));
        return program;
    }
    // Otherwise compare the core with each entry of the table.
    for (place, &core) in cores.iter().enumerate() {
        let is_core = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(step(is_core, 1, core as u32));
        program.push(ret(place as u32));
    }
    // No entry has this core: with a number out of range the kernel chooses by hash.
    program.push(ret(u32::MAX));
    program
}

/// Starts to connect a new TCP socket. The result is known once the socket is writable.
pub(crate) fn connect(addr: SocketAddr) -> io::Result<std::net::TcpStream> {
    start_connect(tcp(Domain::for_address(addr))?, addr)
}

/// Starts to connect an existing socket. See [`connect`].
pub(crate) fn start_connect(socket: Socket, addr: SocketAddr) -> io::Result<std::net::TcpStream> {
    match socket.connect(&addr.into()) {
        // The connect goes on in the background. epoll reports when it has ended.
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Accepts the next connection of a non-blocking listener.
pub(crate) fn accept(
    listener: &std::net::TcpListener,
) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (socket, addr) = accept_from(listener)?;
    Ok((socket.into(), ip_addr(&addr)?))
}

/// Accepts a connection with a single system call: `accept4` sets both flags.
fn accept_from(listener: &impl AsFd) -> io::Result<(Socket, SockAddr)> {
    let fd = listener.as_fd().as_raw_fd();
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `try_init` passes room for any address, and its length. Nothing else owns the new
    // descriptor.
    unsafe {
        SockAddr::try_init(|storage, len| {
            let fd = check(libc::accept4(fd, storage.cast(), len, flags))?;
            Ok(Socket::from_raw_fd(fd))
        })
    }
}

/// Receives into memory that may be uninitialized. Returns the number of bytes it initialized.
pub(crate) fn receive(
    stream: &impl AsFd,
    buf: &mut [std::mem::MaybeUninit<u8>],
) -> io::Result<usize> {
    SockRef::from(stream).recv(buf)
}

/// Receives into the unused room of `buf`, and advances `buf`. Returns the number of bytes.
#[cfg(feature = "bytes")]
pub(crate) fn receive_buf(socket: &impl AsFd, buf: &mut impl bytes::BufMut) -> io::Result<usize> {
    let receive = |room: &mut [_]| Ok((SockRef::from(socket).recv(room)?, ()));
    fill(buf, receive).map(|(n, ())| n)
}

/// Receives a datagram like [`receive_buf`], and returns its sender too, converted by `addr`.
#[cfg(feature = "bytes")]
pub(crate) fn receive_buf_from<A>(
    socket: &impl AsFd,
    buf: &mut impl bytes::BufMut,
    addr: impl FnOnce(&SockAddr) -> io::Result<A>,
) -> io::Result<(usize, A)> {
    let (n, sender) = fill(buf, |room| SockRef::from(socket).recv_from(room))?;
    Ok((n, addr(&sender)?))
}

/// Calls `receive`, a system call, with the unused room of `buf`, and advances `buf` by the number
/// of bytes that it returns.
#[cfg(feature = "bytes")]
fn fill<T>(
    buf: &mut impl bytes::BufMut,
    receive: impl FnOnce(&mut [std::mem::MaybeUninit<u8>]) -> io::Result<(usize, T)>,
) -> io::Result<(usize, T)> {
    // SAFETY: the system call writes no uninitialized bytes.
    let room = unsafe { buf.chunk_mut().as_uninit_slice_mut() };
    let (n, with) = receive(room)?;
    // SAFETY: the call has initialized the first `n` bytes of this room.
    unsafe { buf.advance_mut(n) };
    Ok((n, with))
}

/// Converts an address of IPv4 or IPv6 from the type of socket2.
pub(crate) fn ip_addr(addr: &SockAddr) -> io::Result<SocketAddr> {
    Ok(addr.as_socket().ok_or(io::ErrorKind::InvalidData)?)
}

/// Returns the sender of the next datagram.
pub(crate) fn peek_sender(socket: &std::net::UdpSocket) -> io::Result<SocketAddr> {
    ip_addr(&SockRef::from(socket).peek_sender()?)
}

/// Returns how long a close waits for unsent data.
pub(crate) fn linger(socket: &impl AsFd) -> io::Result<Option<Duration>> {
    SockRef::from(socket).linger()
}

/// Sets how long a close waits for unsent data.
pub(crate) fn set_linger(socket: &impl AsFd, linger: Option<Duration>) -> io::Result<()> {
    SockRef::from(socket).set_linger(linger)
}

/// Returns the address of a path, or of an abstract name if it begins with a NUL byte.
pub(crate) fn unix_addr(path: &Path) -> io::Result<UnixAddr> {
    match path.as_os_str().as_bytes() {
        [0, name @ ..] => UnixAddr::from_abstract_name(name),
        _ => UnixAddr::from_pathname(path),
    }
}

/// Converts an address to the type of socket2.
fn unix_sock_addr(addr: &UnixAddr) -> io::Result<SockAddr> {
    match (addr.as_pathname(), addr.as_abstract_name()) {
        (Some(path), _) => SockAddr::unix(path),
        (None, Some(name)) => {
            let name = [&[0], name].concat();
            SockAddr::unix(OsStr::from_bytes(&name))
        }
        (None, None) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the socket address has no name: use a path or an abstract name",
        )),
    }
}

/// Creates a Unix socket that is neither bound nor connected.
pub(crate) fn unix(kind: Type) -> io::Result<Socket> {
    Socket::new(Domain::UNIX, kind.nonblocking().cloexec(), None)
}

/// Binds a Unix socket to `addr`.
pub(crate) fn unix_bind(socket: &Socket, addr: &UnixAddr) -> io::Result<()> {
    socket.bind(&unix_sock_addr(addr)?)
}

/// Connects a Unix socket. Unlike a TCP connect, this does not wait.
pub(crate) fn unix_set_peer(socket: &Socket, addr: &UnixAddr) -> io::Result<()> {
    socket.connect(&unix_sock_addr(addr)?)
}

/// Creates a Unix socket that listens at `addr`.
pub(crate) fn unix_listen(addr: &UnixAddr) -> io::Result<UnixListener> {
    let socket = unix(Type::STREAM)?;
    unix_bind(&socket, addr)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Creates a connected Unix socket. Unlike a TCP connect, this does not wait.
pub(crate) fn unix_connect(addr: &UnixAddr) -> io::Result<UnixStream> {
    let socket = unix(Type::STREAM)?;
    unix_set_peer(&socket, addr)?;
    Ok(socket.into())
}

/// Accepts the next connection of a non-blocking listener.
pub(crate) fn unix_accept(listener: &UnixListener) -> io::Result<(UnixStream, UnixAddr)> {
    let (socket, addr) = accept_from(listener)?;
    Ok((socket.into(), unix_addr_of(&addr)?))
}

/// Converts the address of a Unix socket from the type of socket2.
pub(crate) fn unix_addr_of(addr: &SockAddr) -> io::Result<UnixAddr> {
    match addr.as_abstract_namespace() {
        Some(name) => UnixAddr::from_abstract_name(name),
        // A peer usually has no name, which is represented as an empty path. The kernel also allows
        // paths one byte longer than the standard library does: treat them as unnamed.
        None => UnixAddr::from_pathname(addr.as_pathname().unwrap_or(Path::new("")))
            .or_else(|_| UnixAddr::from_pathname("")),
    }
}

/// Returns the credentials of the process that connected the other end of a Unix socket.
pub(crate) fn peer_cred(socket: &impl AsFd) -> io::Result<libc::ucred> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` has room for the `len` bytes of the option. Both are valid during the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut len,
        )
    })?;
    Ok(cred)
}
