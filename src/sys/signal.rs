//! Counters of Unix signals.
//!
//! A signal handler may only call async-signal-safe functions. Ours increments an atomic counter
//! and writes to an eventfd.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use tourbillon_sync::per_process;

use super::{check, eventfd::EventFd};

const SIGNALS: usize = 65;
const SIGNALS_END: libc::c_int = SIGNALS as libc::c_int;

per_process! {
    /// The number of times each signal arrived since it was first listened for.
    static COUNTS: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];
}
per_process! {
    /// The eventfd that the handler writes to, or −1.
    static FD: AtomicI32 = AtomicI32::new(-1);
}

extern "C" fn handler(signal: libc::c_int) {
    COUNTS[signal as usize].fetch_add(1, Ordering::Release);
    let fd = FD.load(Ordering::Acquire);
    // SAFETY: `write` is async-signal-safe, and the eight bytes are readable. The interrupted code
    // may be about to read errno, so it is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let one = 1_u64;
        libc::write(fd, (&raw const one).cast(), size_of::<u64>());
        *libc::__errno_location() = errno;
    }
}

/// Returns a descriptor that has an event for each signal. All of them are duplicates of one
/// eventfd. It is never closed, because a handler may be about to write to it.
pub(crate) fn events() -> io::Result<OwnedFd> {
    per_process! { static EVENTS: OnceLock<EventFd> = OnceLock::new(); }
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

/// Handles `signal` from this call on, in place of its default action.
pub(crate) fn listen(signal: libc::c_int) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match signal {
        // Returning from a handler would run the faulting instruction again, without end.
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL => {
            return refuse(format!(
                "signal {signal} reports a fault and cannot be waited for"
            ));
        }
        1..SIGNALS_END => {}
        _ => return refuse(format!("there is no signal {signal}")),
    }
    // SAFETY: all zeros is a valid sigaction, and the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        check(libc::sigaction(signal, &action, std::ptr::null_mut()))?;
    }
    Ok(())
}

/// Returns the number of times `signal` arrived.
pub(crate) fn count(signal: libc::c_int) -> u32 {
    COUNTS[signal as usize].load(Ordering::Acquire)
}
