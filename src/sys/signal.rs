//! Unix signals, turned into counts that a task can wait for.
//!
//! A handler may do next to nothing: ours adds one to a counter and writes to an eventfd, both of
//! which are async-signal-safe.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use super::{check, eventfd::EventFd};

const SIGNALS: usize = 65;
const SIGNALS_END: libc::c_int = SIGNALS as libc::c_int;

/// How often each signal came since somebody first listened for it.
static COUNTS: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];
/// The eventfd that the handler writes to, or −1.
static FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn handler(signal: libc::c_int) {
    COUNTS[signal as usize].fetch_add(1, Ordering::Release);
    let fd = FD.load(Ordering::Acquire);
    // SAFETY: `write` is async-signal-safe, the eight bytes are readable, and errno, which the
    // interrupted code may be about to read, is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let one = 1_u64;
        libc::write(fd, (&raw const one).cast(), size_of::<u64>());
        *libc::__errno_location() = errno;
    }
}

/// A descriptor that sees an edge for each signal that comes. All of them are duplicates of one,
/// which is made once and never closed, since a handler may be about to write to it.
pub(crate) fn events() -> io::Result<OwnedFd> {
    static EVENTS: OnceLock<EventFd> = OnceLock::new();
    let events = match EVENTS.get() {
        Some(events) => events,
        None => {
            let fresh = EventFd::new()?;
            EVENTS.get_or_init(|| fresh)
        }
    };
    FD.store(events.as_raw_fd(), Ordering::Release);
    events.as_fd().try_clone_to_owned()
}

/// Handles `signal` from now on, in place of its default action.
pub(crate) fn listen(signal: libc::c_int) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match signal {
        // Handled by going on, the instruction at fault would fault again, for ever.
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL => {
            return refuse(format!(
                "signal {signal} tells of a fault, and cannot be waited for"
            ));
        }
        1..SIGNALS_END => {}
        _ => return refuse(format!("there is no signal {signal}")),
    }
    // SAFETY: zeroes are a valid sigaction, and the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        check(libc::sigaction(signal, &action, std::ptr::null_mut()))?;
    }
    Ok(())
}

/// Returns how often `signal` came.
pub(crate) fn count(signal: libc::c_int) -> u32 {
    COUNTS[signal as usize].load(Ordering::Acquire)
}
