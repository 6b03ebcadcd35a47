//! Calls that send and receive.

use std::{net::SocketAddrV4, ptr, slice};

use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::{
    super::{
        answer, bytes,
        files::{self, on_file},
        outside::waits,
        raw::real,
    },
    on_socket, read_address, until_done, write_address,
};
use crate::world::{
    Inside, World,
    disk::Range,
    net::{Errno, Kind},
};

pub(super) fn symbols() -> [usize; 8] {
    [
        send as *const () as usize,
        sendto as *const () as usize,
        sendmsg as *const () as usize,
        recv as *const () as usize,
        recvfrom as *const () as usize,
        recvmsg as *const () as usize,
        readv as *const () as usize,
        writev as *const () as usize,
    ]
}

fn write_to(
    world: &World,
    fd: c_int,
    to: Option<SocketAddrV4>,
    bytes: &[u8],
    flags: c_int,
) -> Result<usize, Errno> {
    until_done(world, fd, flags, libc::SO_SNDTIMEO, |world| {
        let mut state = world.lock();
        match state.socket(fd)?.kind {
            Kind::Connection(id) => state.write_stream(id, bytes),
            Kind::Udp(_) => state.send_datagram(fd, to, bytes),
            _ => Err(libc::EPIPE),
        }
    })
}

fn read_from(
    world: &World,
    fd: c_int,
    buffer: &mut [u8],
    flags: c_int,
) -> Result<(Option<SocketAddrV4>, usize), Errno> {
    let peeks = flags & libc::MSG_PEEK != 0;
    until_done(world, fd, flags, libc::SO_RCVTIMEO, |world| {
        let mut state = world.lock();
        match state.socket(fd)?.kind {
            Kind::Connection(id) => Ok((None, state.read_stream(id, buffer, peeks)?)),
            Kind::Udp(_) => {
                let (from, count) = state.receive_datagram(fd, buffer, peeks)?;
                Ok((Some(from), count))
            }
            _ => Err(libc::ENOTCONN),
        }
    })
}

/// Reads from a socket, for `read`.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
pub(in crate::calls) unsafe fn read(
    world: &World,
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
) -> ssize_t {
    let buffer = iovec {
        iov_base: buffer,
        iov_len: len,
    };
    // SAFETY: as the caller says.
    let result = unsafe { scattered(&buffer, 1, |bytes| read_from(world, fd, bytes, 0)) };
    answer(result.map(|(_, count)| count))
}

/// Writes to a socket, for `write`.
///
/// # Safety
///
/// `buffer` has `len` bytes.
pub(in crate::calls) unsafe fn write(
    world: &World,
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: as the caller says.
    let bytes = unsafe { bytes(buffer, len) };
    answer(write_to(world, fd, None, bytes, 0))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller vouches for the arguments.
    unsafe { sendto(fd, buffer, len, flags, ptr::null(), 0) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    at: *const sockaddr,
    at_len: socklen_t,
) -> ssize_t {
    let Some(world) = on_socket(fd) else {
        waits("sendto", fd, libc::POLLOUT, flags);
        return real!(SYS_sendto, fd, buffer, len, flags, at, at_len);
    };
    let to = match at.is_null() {
        true => Ok(None),
        // SAFETY: the caller passes an address of this length.
        false => unsafe { read_address(at, at_len) }.map(Some),
    };
    // SAFETY: the caller passes this many bytes.
    let bytes = unsafe { bytes(buffer, len) };
    answer(to.and_then(|to| write_to(&world, fd, to, bytes, flags)))
}

/// Returns how many buffers a caller has, of `readv` and `writev`.
fn buffers(count: c_int) -> Result<usize, Errno> {
    match count {
        0..=1_024 => Ok(count as usize),
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
///
/// There are `count` valid buffers, or none.
unsafe fn all<'a>(buffers: *const iovec, count: usize) -> &'a [iovec] {
    match count {
        0 => &[],
        // SAFETY: as the caller says.
        _ => unsafe { slice::from_raw_parts(buffers, count) },
    }
}

/// Returns the bytes of several buffers.
///
/// # Safety
///
/// There are `count` valid buffers.
unsafe fn gathered(buffers: *const iovec, count: usize) -> Vec<u8> {
    // SAFETY: as the caller says.
    let buffers = unsafe { all(buffers, count) };
    let mut whole = Vec::new();
    for buffer in buffers.iter().filter(|buffer| buffer.iov_len > 0) {
        // SAFETY: as the caller says.
        whole.extend_from_slice(unsafe { bytes(buffer.iov_base, buffer.iov_len) });
    }
    whole
}

/// Fills several buffers by one call of `read`.
///
/// # Safety
///
/// There are `count` valid buffers.
unsafe fn scattered<T>(
    buffers: *const iovec,
    count: usize,
    read: impl FnOnce(&mut [u8]) -> Result<(T, usize), Errno>,
) -> Result<(T, usize), Errno> {
    // SAFETY: as the caller says.
    let buffers = unsafe { all(buffers, count) };
    let mut bytes = vec![0; buffers.iter().map(|buffer| buffer.iov_len).sum()];
    let (with, len) = read(&mut bytes)?;
    let mut rest = &bytes[..len];
    for buffer in buffers {
        let (part, later) = rest.split_at(rest.len().min(buffer.iov_len));
        // SAFETY: as the caller says.
        unsafe {
            part.as_ptr()
                .copy_to_nonoverlapping(buffer.iov_base.cast(), part.len());
        }
        rest = later;
    }
    Ok((with, len))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let Some(world) = on_socket(fd) else {
        waits("sendmsg", fd, libc::POLLOUT, flags);
        return real!(SYS_sendmsg, fd, message, flags);
    };
    // SAFETY: the caller passes a valid message.
    let (to, bytes) = unsafe {
        let message = &*message;
        let at: *const sockaddr = message.msg_name.cast();
        let to = match at.is_null() {
            true => Ok(None),
            false => read_address(at, message.msg_namelen).map(Some),
        };
        (to, gathered(message.msg_iov, message.msg_iovlen))
    };
    answer(to.and_then(|to| write_to(&world, fd, to, &bytes, flags)))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let none = ptr::null_mut();
    // SAFETY: the caller vouches for the arguments.
    unsafe { recvfrom(fd, buffer, len, flags, none, ptr::null_mut()) }
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    at: *mut sockaddr,
    at_len: *mut socklen_t,
) -> ssize_t {
    let Some(world) = on_socket(fd) else {
        waits("recvfrom", fd, libc::POLLIN, flags);
        return real!(SYS_recvfrom, fd, buffer, len, flags, at, at_len);
    };
    let buffer = iovec {
        iov_base: buffer,
        iov_len: len,
    };
    // SAFETY: the caller passes a buffer of this length.
    let result = unsafe { scattered(&buffer, 1, |bytes| read_from(&world, fd, bytes, flags)) };
    if let Ok((Some(from), _)) = result {
        // SAFETY: the caller passes room for an address, or none.
        unsafe { write_address(from, at, at_len) };
    }
    answer(result.map(|(_, count)| count))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(world) = on_socket(fd) else {
        waits("recvmsg", fd, libc::POLLIN, flags);
        return real!(SYS_recvmsg, fd, message, flags);
    };
    // SAFETY: the caller passes a valid message.
    let message = unsafe { &mut *message };
    (message.msg_flags, message.msg_controllen) = (0, 0);
    // SAFETY: as above.
    let result = unsafe {
        scattered(message.msg_iov, message.msg_iovlen, |bytes| {
            read_from(&world, fd, bytes, flags)
        })
    };
    if let Ok((Some(from), _)) = result {
        // SAFETY: as above.
        unsafe { write_address(from, message.msg_name.cast(), &mut message.msg_namelen) };
    }
    answer(result.map(|(_, count)| count))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, at: *const iovec, count: c_int) -> ssize_t {
    let Some(world) = on_file_or_socket(fd) else {
        waits("readv", fd, libc::POLLIN, 0);
        return real!(SYS_readv, fd, at, count);
    };
    let is_file = world.lock().kernel.file(fd).is_some();
    let read = |bytes: &mut [u8]| match is_file {
        true => Ok((None, files::read_at(&world, fd, Range::Next, bytes)?)),
        false => read_from(&world, fd, bytes, 0),
    };
    // SAFETY: the caller passes this many buffers.
    let result = buffers(count).and_then(|count| unsafe { scattered(at, count, read) });
    answer(result.map(|(_, count)| count))
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, at: *const iovec, count: c_int) -> ssize_t {
    let Some(world) = on_file_or_socket(fd) else {
        waits("writev", fd, libc::POLLOUT, 0);
        return real!(SYS_writev, fd, at, count);
    };
    let is_file = world.lock().kernel.file(fd).is_some();
    // SAFETY: the caller passes this many buffers.
    let bytes = buffers(count).map(|count| unsafe { gathered(at, count) });
    answer(bytes.and_then(|bytes| match is_file {
        true => files::write_at(&world, fd, Range::Next, &bytes),
        false => write_to(&world, fd, None, &bytes, 0),
    }))
}

/// Enters the simulation for a call on a file of a disk, or on a socket.
fn on_file_or_socket(fd: c_int) -> Option<Inside> {
    on_file(fd).or_else(|| on_socket(fd))
}
