//! The functions of the C library that the simulation replaces.
//!
//! A program calls the first definition that the linker finds, and these come before those of the
//! C library. So the standard library, the runtime and all other crates call them, unchanged. The
//! system answers a thread that is not part of a simulation. It also answers calls for a descriptor
//! that the simulation did not make.

mod atomics;
mod clock;
mod files;
mod net;
mod outside;
mod poll;
mod raw;
mod signals;
mod stuck;
mod thread;

pub(crate) use self::{
    files::{Listings, Pages},
    poll::{open, really_close},
    raw::last_real,
    stuck::{backtrace, thread_id, watch},
};

use libc::{c_int, c_void};

use crate::world::net::Errno;

const TICK: u64 = 1_000_000_000;

/// Sets the error number, and returns −1.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the pointer is valid for the calling thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Returns what a call of the C library returns, and sets the error number.
fn answer<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(isize::MAX),
        Err(errno) => fail(errno) as isize,
    }
}

fn done(result: Result<(), Errno>) -> c_int {
    answer(result.map(|()| 0)) as c_int
}

/// Returns the bytes that a caller passes, of which there may be none.
///
/// # Safety
///
/// At `at` are `len` bytes for as long as `'a`.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: as the caller says.
        _ => unsafe { std::slice::from_raw_parts(at.cast(), len) },
    }
}

/// Has the linker take all functions of this module, and with them these definitions. Also looks up
/// those of the C library.
pub(crate) fn link() {
    clock::find();
    outside::find();
    thread::find();
    files::find();
    signals::find();
    let all: [&[usize]; 8] = [
        &atomics::symbols(),
        &clock::symbols(),
        &files::symbols(),
        &net::symbols(),
        &outside::symbols(),
        &poll::symbols(),
        &signals::symbols(),
        &thread::symbols(),
    ];
    std::hint::black_box(all);
}
