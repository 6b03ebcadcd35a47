//! Sockets, made ready for the reactor: non-blocking and close-on-exec.

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

/// How many connections may wait to be accepted: as many as the system allows, which is
/// `net.core.somaxconn`. Where there is no room, clients wait a second or more to try again.
const BACKLOG: i32 = i32::MAX;

/// A TCP socket that is not bound and not connected.
pub(crate) fn tcp(domain: Domain) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    Socket::new(domain, kind, Some(Protocol::TCP))
}

/// A TCP socket that listens at `addr`, which may be one that was in use a moment ago.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = tcp(Domain::for_address(addr))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Gives the connections whose first packet a core has handled to the socket whose place in the
/// group of those that share the port (`SO_REUSEPORT`) is the core's place in `cores`. Those of
/// other cores are spread as they are without this.
pub(crate) fn steer_by_core(listener: &impl AsFd, cores: &[usize]) -> io::Result<()> {
    let program = steering(cores);
    let program = libc::sock_fprog {
        len: program
            .len()
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program, which the kernel copies, and the instructions that it points to live
    // through the call; they are only read.
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

/// What the kernel runs for the first packet of each connection: it answers a place in the group,
/// or one that there is not, and then the kernel chooses by itself.
fn steering(cores: &[usize]) -> Vec<libc::sock_filter> {
    let step = |code: u32, jump_if_not: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k,
    };
    let ret = |k| step(libc::BPF_RET | libc::BPF_K, 0, k);
    let core = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, core)];
    if cores.iter().copied().eq(0..cores.len()) {
        program.push(step(libc::BPF_RET | libc::BPF_A, 0, 0));
        return program;
    }
    for (place, &core) in cores.iter().enumerate() {
        let is_core = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(step(is_core, 1, core as u32));
        program.push(ret(place as u32));
    }
    program.push(ret(u32::MAX));
    program
}

/// A TCP socket on its way to `addr`: connected, or refused, once it is writable.
pub(crate) fn connect(addr: SocketAddr) -> io::Result<std::net::TcpStream> {
    start_connect(tcp(Domain::for_address(addr))?, addr)
}

/// As [`connect`], with a socket that there is.
pub(crate) fn start_connect(socket: Socket, addr: SocketAddr) -> io::Result<std::net::TcpStream> {
    match socket.connect(&addr.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// The next connection of a non-blocking listener.
pub(crate) fn accept(
    listener: &std::net::TcpListener,
) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (socket, addr) = accept_from(listener)?;
    let addr = addr.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok((socket.into(), addr))
}

/// One system call: `accept4` sets both flags.
fn accept_from(listener: &impl AsFd) -> io::Result<(Socket, SockAddr)> {
    let fd = listener.as_fd().as_raw_fd();
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `try_init` gives room for any address, and its length; the descriptor is fresh, so
    // that nobody else owns it.
    unsafe {
        SockAddr::try_init(|storage, len| {
            let fd = check(libc::accept4(fd, storage.cast(), len, flags))?;
            Ok(Socket::from_raw_fd(fd))
        })
    }
}

/// Receives into memory that need not be initialized; so many bytes of it are, afterwards.
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
pub(crate) fn receive(
    stream: &impl AsFd,
    buf: &mut [std::mem::MaybeUninit<u8>],
) -> io::Result<usize> {
    SockRef::from(stream).recv(buf)
}

/// Who sent the datagram that is next.
pub(crate) fn peek_sender(socket: &std::net::UdpSocket) -> io::Result<SocketAddr> {
    let sender = SockRef::from(socket).peek_sender()?;
    Ok(sender.as_socket().ok_or(io::ErrorKind::InvalidData)?)
}

/// Returns how long a close waits for what was not sent yet.
pub(crate) fn linger(socket: &impl AsFd) -> io::Result<Option<Duration>> {
    SockRef::from(socket).linger()
}

/// See [`linger`].
pub(crate) fn set_linger(socket: &impl AsFd, linger: Option<Duration>) -> io::Result<()> {
    SockRef::from(socket).set_linger(linger)
}

/// The address of a path, or, if it begins with a NUL byte, of an abstract name.
pub(crate) fn unix_addr(path: &Path) -> io::Result<UnixAddr> {
    match path.as_os_str().as_bytes() {
        [0, name @ ..] => UnixAddr::from_abstract_name(name),
        _ => UnixAddr::from_pathname(path),
    }
}

/// As socket2 has it.
fn unix_sock_addr(addr: &UnixAddr) -> io::Result<SockAddr> {
    match (addr.as_pathname(), addr.as_abstract_name()) {
        (Some(path), _) => SockAddr::unix(path),
        (None, Some(name)) => {
            let name = [&[0], name].concat();
            SockAddr::unix(OsStr::from_bytes(&name))
        }
        (None, None) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the address has no name",
        )),
    }
}

fn unix_stream() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

/// A Unix socket that listens at `addr`.
pub(crate) fn unix_listen(addr: &UnixAddr) -> io::Result<UnixListener> {
    let socket = unix_stream()?;
    socket.bind(&unix_sock_addr(addr)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A Unix socket that is connected: unlike with TCP there is nothing to wait for.
pub(crate) fn unix_connect(addr: &UnixAddr) -> io::Result<UnixStream> {
    let socket = unix_stream()?;
    socket.connect(&unix_sock_addr(addr)?)?;
    Ok(socket.into())
}

/// The next connection of a non-blocking listener.
pub(crate) fn unix_accept(listener: &UnixListener) -> io::Result<(UnixStream, UnixAddr)> {
    let (socket, addr) = accept_from(listener)?;
    let addr = match addr.as_abstract_namespace() {
        Some(name) => UnixAddr::from_abstract_name(name)?,
        // Mostly it has no name, which is what an empty path is.
        // And the kernel knows paths that are longer by a byte than what the standard library
        // takes.
        None => UnixAddr::from_pathname(addr.as_pathname().unwrap_or(Path::new("")))
            .or_else(|_| UnixAddr::from_pathname(""))?,
    };
    Ok((socket.into(), addr))
}

/// Who was at the other end of a Unix socket when it was connected.
pub(crate) fn peer_cred(socket: &impl AsFd) -> io::Result<libc::ucred> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` has room for the `len` bytes that the option is of; both live through the
    // call.
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

/// A socket of TCP that somebody else owns, and that is asked what its peer has taken.
///
/// It names the socket by descriptor and cookie: once the owner has closed the descriptor, another
/// file may have its number, but no other socket has the cookie.
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    fd: std::os::fd::RawFd,
    cookie: u64,
}

#[cfg(feature = "axum")]
impl Taken {
    /// Returns none if the system gives sockets no cookies (before Linux 4.12).
    pub(crate) fn of(socket: &impl AsFd) -> Option<Self> {
        let fd = socket.as_fd().as_raw_fd();
        let cookie = cookie(fd)?;
        Some(Self { fd, cookie })
    }

    /// Returns how many bytes the peer's system has acknowledged since the connection was made,
    /// and none if the socket is closed.
    pub(crate) fn bytes(&self) -> Option<u64> {
        /// Where `tcpi_bytes_acked` is in the kernel's `struct tcp_info` (since Linux 4.1). The
        /// kernel only ever appends to that, and libc has the field for some targets alone.
        const ACKED: usize = 120;
        if cookie(self.fd) != Some(self.cookie) {
            return None;
        }
        let mut info = [0_u8; ACKED + 8];
        let len = option(self.fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        let acked = info[ACKED..].try_into().ok()?;
        (len == info.len()).then(|| u64::from_ne_bytes(acked))
    }
}

/// Returns the number that no other socket has until the system is started anew.
#[cfg(feature = "axum")]
fn cookie(fd: std::os::fd::RawFd) -> Option<u64> {
    let mut cookie = [0; 8];
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie)?;
    Some(u64::from_ne_bytes(cookie))
}

/// Reads an option of a socket, and returns its length. The descriptor may be closed or no socket,
/// which is an error of the system's, and none here.
#[cfg(feature = "axum")]
fn option(fd: std::os::fd::RawFd, level: i32, name: i32, value: &mut [u8]) -> Option<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).ok()?;
    // SAFETY: `value` has room for the `len` bytes that the kernel may write, and both live through
    // the call. It changes no state of the file that `fd` names, whichever that is.
    check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) })
        .ok()?;
    Some(len as usize)
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn what_a_peer_has_acknowledged_is_counted_until_the_socket_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let taken = Taken::of(&sender).unwrap();
        let before = taken.bytes().unwrap();
        sender.write_all(&[7; 1000]).unwrap();
        receiver.read_exact(&mut [0; 1000]).unwrap();
        // An acknowledgement may be delayed.
        let acknowledged = || taken.bytes().unwrap() - before == 1000;
        while !acknowledged() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(sender);
        assert_eq!(taken.bytes(), None);
        // Other files may have the number now.
        let others: Vec<_> = (0..8).map(|_| listener.try_clone().unwrap()).collect();
        assert_eq!(taken.bytes(), None);
        drop(others);
    }
}
