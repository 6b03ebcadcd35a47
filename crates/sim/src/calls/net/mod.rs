//! Sockets.

mod lookup;
mod transfer;

use std::{
    mem,
    net::{Ipv4Addr, SocketAddrV4},
};

use libc::{c_int, c_ulong, c_void, sockaddr, sockaddr_in, socklen_t};

pub(super) use self::transfer::{read, write};

use super::{
    answer, bytes, done, fail, files,
    outside::refuse_wait,
    poll::{has_room, number},
    raw::real,
};
use crate::world::{
    Ended, Inside, NEVER, Wait, World, enter,
    kernel::Object,
    net::{Datagrams, Errno, Kind, Socket},
};

pub(super) fn symbols() -> Vec<usize> {
    let mut symbols = vec![
        socket as *const () as usize,
        bind as *const () as usize,
        listen as *const () as usize,
        connect as *const () as usize,
        accept as *const () as usize,
        accept4 as *const () as usize,
        getsockname as *const () as usize,
        getpeername as *const () as usize,
        getsockopt as *const () as usize,
        setsockopt as *const () as usize,
        shutdown as *const () as usize,
        fcntl as *const () as usize,
        fcntl64 as *const () as usize,
        ioctl as *const () as usize,
    ];
    symbols.extend(transfer::symbols());
    symbols.extend(lookup::symbols());
    symbols
}

/// Enters the simulation for a call on one of its sockets.
pub(super) fn on_socket(fd: c_int) -> Option<Inside> {
    enter().filter(|world| world.lock().socket(fd).is_ok())
}

/// Tries until the call need not wait. A socket that does not block tries once. `limit` is the
/// option that has the time limit of such calls.
fn until_done<T>(
    world: &World,
    fd: c_int,
    flags: c_int,
    limit: c_int,
    mut attempt: impl FnMut(&World) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let until = {
        let mut state = world.lock();
        let limit = state.socket(fd)?.limit(limit);
        limit.map_or(NEVER, |limit| state.ahead(limit))
    };
    loop {
        world.point();
        let result = attempt(world);
        let mut state = world.lock();
        let waits = matches!(result, Err(libc::EAGAIN))
            && flags & libc::MSG_DONTWAIT == 0
            && state.socket(fd)?.is_blocking;
        if !waits {
            return result;
        }
        match world.wait(state, Wait::Socket(fd), until) {
            Ended::Event | Ended::Nothing => {}
            Ended::Time => return Err(libc::EAGAIN),
            Ended::Handler { restarts } if restarts && until == NEVER => {}
            Ended::Handler { .. } => return Err(libc::EINTR),
        }
    }
}

/// # Safety
///
/// `at` is an address of `len` bytes.
unsafe fn read_address(at: *const sockaddr, len: socklen_t) -> Result<SocketAddrV4, Errno> {
    if (len as usize) < size_of::<sockaddr_in>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller passes an address of this length.
    let at = unsafe { at.cast::<sockaddr_in>().read_unaligned() };
    if c_int::from(at.sin_family) != libc::AF_INET {
        return Err(libc::EAFNOSUPPORT);
    }
    let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
    Ok(SocketAddrV4::new(ip, u16::from_be(at.sin_port)))
}

fn to_c(at: SocketAddrV4) -> sockaddr_in {
    // SAFETY: all bytes may be zero.
    let mut address: sockaddr_in = unsafe { mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = at.port().to_be();
    address.sin_addr.s_addr = u32::from(*at.ip()).to_be();
    address
}

/// Writes as much of an address as there is room for.
///
/// # Safety
///
/// Both are null, or `place` has as much room as `len` says.
unsafe fn write_address(at: SocketAddrV4, place: *mut sockaddr, len: *mut socklen_t) {
    if place.is_null() || len.is_null() {
        return;
    }
    let address = to_c(at);
    // SAFETY: as the caller says.
    unsafe {
        let room = (*len as usize).min(size_of::<sockaddr_in>());
        let bytes: *const u8 = (&raw const address).cast();
        bytes.copy_to_nonoverlapping(place.cast(), room);
        *len = size_of::<sockaddr_in>() as socklen_t;
    }
}

#[unsafe(no_mangle)]
extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let Some(world) = enter() else {
        return real!(SYS_socket, domain, kind, protocol) as c_int;
    };
    let is_blocking = kind & libc::SOCK_NONBLOCK == 0;
    let kind = match (domain, kind & 0xf) {
        (libc::AF_INET, libc::SOCK_STREAM) => Kind::Idle,
        (libc::AF_INET, libc::SOCK_DGRAM) => Kind::Udp(Datagrams::default()),
        // The hosts have neither IPv6 nor sockets of files.
        _ => return fail(libc::EAFNOSUPPORT),
    };
    super::open(&world, Object::Socket(Socket::new(kind, is_blocking)))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_bind, fd, at, len) as c_int;
    };
    world.point();
    // SAFETY: the caller passes an address of this length.
    let bound = unsafe { read_address(at, len) };
    done(bound.and_then(|at| world.lock().bind(fd, at)))
}

#[unsafe(no_mangle)]
extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_listen, fd, backlog) as c_int;
    };
    world.point();
    let mut state = world.lock();
    let result = state.socket(fd).and_then(|socket| match socket.kind {
        Kind::Idle if socket.local.is_some() => {
            socket.kind = Kind::Listener(Default::default());
            Ok(())
        }
        Kind::Listener(_) => Ok(()),
        _ => Err(libc::EINVAL),
    });
    done(result)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_connect, fd, at, len) as c_int;
    };
    world.point();
    // SAFETY: the caller passes an address of this length.
    let to = match unsafe { read_address(at, len) } {
        Ok(to) => to,
        Err(errno) => return fail(errno),
    };
    let mut state = world.lock();
    let result = match state.socket(fd).map(|socket| &mut socket.kind) {
        Ok(Kind::Udp(_)) => state.connect_datagrams(fd, to),
        Ok(_) => state.connect(fd, to),
        Err(errno) => Err(errno),
    };
    let waits = result == Err(libc::EINPROGRESS) && state.socket(fd).is_ok_and(|it| it.is_blocking);
    drop(state);
    if !waits {
        return done(result);
    }
    let result = until_done(&world, fd, 0, libc::SO_SNDTIMEO, |world| {
        let mut state = world.lock();
        let Kind::Connection(id) = state.socket(fd)?.kind else {
            return Err(libc::EINVAL);
        };
        state.is_connected(id)
    });
    done(result)
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller vouches for the arguments.
    unsafe { accept4(fd, at, len, 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    at: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_accept4, fd, at, len, flags) as c_int;
    };
    // A connection stays in the queue if there is no descriptor for it.
    let accept = |world: &World| match has_room(world) {
        true => world.lock().accept(fd),
        false => Err(libc::EMFILE),
    };
    let accepted = until_done(&world, fd, 0, libc::SO_RCVTIMEO, accept);
    let state = world.lock();
    let found = accepted.and_then(|id| {
        let end = state.net.end(id).ok_or(libc::ECONNABORTED)?;
        Ok((id, end.local, end.peer))
    });
    let (id, local, peer) = match found {
        Ok(found) => found,
        Err(errno) => return fail(errno),
    };
    drop(state);
    // A process that ends in the wait would never close the number.
    let new = number(&world);
    if new < 0 {
        return new;
    }
    let mut state = world.lock();
    let mut socket = Socket::new(Kind::Connection(id), flags & libc::SOCK_NONBLOCK == 0);
    socket.local = Some(local);
    let host = state.host();
    state.kernel.open(new, host, Object::Socket(socket));
    state.accepted(id, new);
    state.note(|| format!("accepts a connection of {peer}"));
    // SAFETY: the caller passes room for an address, or none.
    unsafe { write_address(peer, at, len) };
    new
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_getsockname, fd, at, len) as c_int;
    };
    let local = world.lock().socket(fd).map(|socket| socket.local);
    let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    // SAFETY: the caller passes room for an address.
    done(local.map(|local| unsafe { write_address(local.unwrap_or(none), at, len) }))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_getpeername, fd, at, len) as c_int;
    };
    let mut state = world.lock();
    let peer = state.peer(fd);
    // SAFETY: the caller passes room for an address.
    done(peer.map(|peer| unsafe { write_address(peer, at, len) }))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_getsockopt, fd, level, name, value, len) as c_int;
    };
    let mut state = world.lock();
    let found = state.option(fd, level, name);
    done(found.map(|bytes| {
        // SAFETY: the caller passes as much room as `len` says.
        unsafe {
            let count = bytes.len().min(*len as usize);
            bytes.as_ptr().copy_to_nonoverlapping(value.cast(), count);
            *len = count as socklen_t;
        }
    }))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_setsockopt, fd, level, name, value, len) as c_int;
    };
    // Messages that the kernel divides or joins are not simulated.
    if level == libc::SOL_UDP {
        return fail(libc::ENOPROTOOPT);
    }
    // SAFETY: the caller passes a value of this length.
    let value = unsafe { bytes(value, len as usize) };
    let mut state = world.lock();
    done(state.socket(fd).map(|socket| {
        socket.options.insert((level, name), value.to_vec());
    }))
}

#[unsafe(no_mangle)]
extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_shutdown, fd, how) as c_int;
    };
    world.point();
    let mut state = world.lock();
    let result = match state.socket(fd).map(|socket| &socket.kind) {
        Ok(&Kind::Connection(id)) => {
            let (reads, writes) = (how != libc::SHUT_WR, how != libc::SHUT_RD);
            state.shut_down(id, reads, writes)
        }
        Ok(_) => Err(libc::ENOTCONN),
        Err(errno) => Err(errno),
    };
    done(result)
}

/// The name of `fcntl` in programs in C with offsets of 64 bits.
#[unsafe(no_mangle)]
extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    fcntl(fd, command, argument)
}

#[unsafe(no_mangle)]
extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let Some(world) = enter().filter(|world| world.lock().kernel.has(fd)) else {
        let at_once = match command {
            libc::F_SETLKW => libc::F_SETLK,
            libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
            _ => return real!(SYS_fcntl, fd, command, argument) as c_int,
        };
        let tried = real!(SYS_fcntl, fd, at_once, argument) as c_int;
        // SAFETY: the pointer is valid for the calling thread.
        let error = unsafe { *libc::__errno_location() };
        if tried >= 0 || !matches!(error, libc::EAGAIN | libc::EACCES) {
            return tried;
        }
        refuse_wait(|| format!("fcntl({fd})"));
        return real!(SYS_fcntl, fd, command, argument) as c_int;
    };
    let mut state = world.lock();
    match command {
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW if state.kernel.file(fd).is_some() => {
            drop(state);
            // SAFETY: the caller passes a `flock` with these commands.
            unsafe { files::of_record(&world, fd, command, argument as *mut libc::flock) }
        }
        libc::F_GETFL if state.kernel.file(fd).is_some() => answer(state.flags(fd)) as c_int,
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC if state.kernel.can_share(fd) => {
            drop(state);
            files::share(&world, fd, real!(SYS_fcntl, fd, command, argument) as c_int)
        }
        libc::F_GETFL => {
            let is_blocking = state.socket(fd).is_ok_and(|socket| socket.is_blocking);
            libc::O_RDWR | if is_blocking { 0 } else { libc::O_NONBLOCK }
        }
        libc::F_SETFL if state.kernel.file(fd).is_some() => {
            done(state.set_flags(fd, argument as c_int))
        }
        libc::F_SETFL => {
            if let Ok(socket) = state.socket(fd) {
                socket.is_blocking = argument & libc::O_NONBLOCK as usize == 0;
            }
            0
        }
        libc::F_GETFD | libc::F_SETFD => real!(SYS_fcntl, fd, command, argument) as c_int,
        // Two descriptors of one socket, and locks of open files, are not simulated.
        _ => fail(libc::EINVAL),
    }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some(world) = on_socket(fd) else {
        return real!(SYS_ioctl, fd, request, argument) as c_int;
    };
    if request != libc::FIONBIO as c_ulong {
        return fail(libc::ENOTTY);
    }
    // SAFETY: the caller passes a number.
    let is_blocking = unsafe { *argument.cast::<c_int>() } == 0;
    let mut state = world.lock();
    done(
        state
            .socket(fd)
            .map(|socket| socket.is_blocking = is_blocking),
    )
}
