//! The functions of the C library that the simulation replaces.
//!
//! A program calls the first definition that the linker finds, and these come before those of the
//! C library. So the standard library, the runtime and all other crates call them, unchanged. The
//! system answers a thread that is not part of a simulation. It also answers calls for a descriptor
//! that the simulation did not make.

mod atomics;
mod clock;
mod net;
mod poll;
mod raw;
mod thread;

pub(crate) use self::poll::{open, really_close};

use libc::c_int;

const TICK: u64 = 1_000_000_000;

/// Sets the error number, and returns −1.
fn fail(errno: c_int) -> c_int {
    // SAFETY: the pointer is valid for the calling thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Has the linker take all functions of this module, and with them these definitions. Also looks up
/// those of the C library.
pub(crate) fn link() {
    thread::find();
    let all: [&[usize]; 5] = [
        &atomics::symbols(),
        &clock::symbols(),
        &net::symbols(),
        &poll::symbols(),
        &thread::symbols(),
    ];
    std::hint::black_box(all);
}
