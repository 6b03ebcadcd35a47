//! Everything that talks to the operating system. Nothing outside this module does.

pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod poll;
#[cfg(feature = "inspect")]
pub(crate) mod process;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod thread;
pub(crate) mod timerfd;

use std::io;

/// The result of a libc call that answers −1 on failure.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
