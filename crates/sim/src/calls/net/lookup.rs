//! Names of hosts.

use std::{
    ffi::CStr,
    mem,
    net::{Ipv4Addr, SocketAddrV4},
};

use libc::{c_char, c_int, sockaddr_in, socklen_t};

use super::{
    super::thread::{really_free, really_look_up},
    to_c,
};
use crate::world::{enter, net::address};

pub(super) fn symbols() -> [usize; 2] {
    [
        getaddrinfo as *const () as usize,
        freeaddrinfo as *const () as usize,
    ]
}

/// An answer to a look-up, in one allocation.
#[repr(C)]
struct Found {
    info: libc::addrinfo,
    address: sockaddr_in,
}

/// Resolves the name of a host, or an address.
///
/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    let Some(world) = enter() else {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { really_look_up(name, service, hints, found) };
    };
    world.point();
    let text = |at: *const c_char| match at.is_null() {
        true => String::new(),
        // SAFETY: the caller passes a text that ends with a zero byte.
        false => unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned(),
    };
    let (name, service) = (text(name), text(service));
    let host = world.lock().host_named(&name);
    let ip = match (name.parse::<Ipv4Addr>(), host) {
        (Ok(ip), _) => ip,
        (_, Some(host)) => address(host),
        _ if name == "localhost" => Ipv4Addr::LOCALHOST,
        _ => return libc::EAI_NONAME,
    };
    let port = service.parse().unwrap_or(0);
    let mut answer = Box::new(Found {
        // SAFETY: all bytes may be zero.
        info: unsafe { mem::zeroed() },
        address: to_c(SocketAddrV4::new(ip, port)),
    });
    // SAFETY: the caller passes valid hints or none.
    let kind = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_socktype);
    answer.info.ai_family = libc::AF_INET;
    answer.info.ai_socktype = if kind == 0 { libc::SOCK_STREAM } else { kind };
    answer.info.ai_addrlen = size_of::<sockaddr_in>() as socklen_t;
    let answer = Box::into_raw(answer);
    // SAFETY: the answer is valid, and so is the place of the caller.
    unsafe {
        (*answer).info.ai_addr = (&raw mut (*answer).address).cast();
        *found = answer.cast();
    }
    0
}

/// # Safety
///
/// As in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn freeaddrinfo(found: *mut libc::addrinfo) {
    match enter() {
        // SAFETY: a thread of the simulation frees what `getaddrinfo` gave it.
        Some(_) => drop(unsafe { Box::from_raw(found.cast::<Found>()) }),
        // SAFETY: the caller vouches for the argument.
        None => unsafe { really_free(found) },
    }
}
