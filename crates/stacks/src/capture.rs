//! Takes the stack of a thread that runs.

use std::{
    error::Error,
    fmt, io,
    sync::{Mutex, PoisonError},
};

use crate::{Stack, sys, unwind::Tables};

/// The most words of a stack that are copied: the innermost 256 KiB.
const ROOM: usize = 1 << 15;

/// Why there is no stack.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// The thread has not answered within 200 ms, and does not sleep in the kernel: it has no core,
    /// or it blocks the signal `SIGURG`.
    NoAnswer,
    /// The system refused: for example there is no such thread, or `/proc` is not mounted. The kind
    /// is `AlreadyExists` if the program has its own handler for `SIGURG`.
    Os(io::Error),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str(
                "the thread has not answered to SIGURG: it has no core, or it blocks the signal",
            ),
            Self::Os(error) => write!(f, "the stack of the thread cannot be read: {error}"),
        }
    }
}

impl Error for CaptureError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoAnswer => None,
            Self::Os(error) => Some(error),
        }
    }
}

/// Takes the stack of a thread of this process, given by its number in `/proc/self/task`, such as
/// [`Stall::thread`](tourbillon::runtime::Stall::thread).
///
/// A signal (`SIGURG`) holds the thread for some 50 µs, while the calling thread copies the
/// innermost 256 KiB of its stack. A call of the system in which the thread waits is restarted. It
/// fails with `EINTR` if the kernel cannot restart it: `poll`, `epoll_wait`, `nanosleep`, and reads
/// of a socket with a time limit. Locks and `sleep` of std call again then, and a
/// `TcpStream` with a read timeout returns [`Interrupted`](io::ErrorKind::Interrupted).
///
/// A thread that does not answer but sleeps in the kernel, as one that waits for a disk that hangs,
/// has a stack without addresses, with what the kernel [says](Stack::waits_in) of it.
///
/// # Errors
///
/// Returns an error if the thread does not answer, if there is no such thread, or if it is the
/// calling one. On processors other than x86-64 and AArch64, the kind is `Unsupported`.
pub fn capture(thread: u32) -> Result<Stack, CaptureError> {
    // One thread is held at a time.
    static LOCK: Mutex<()> = Mutex::new(());
    // What the kernel waits for, before the signal ends the wait.
    let sleep = sys::Sleep::of(thread);
    let copied = {
        let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        sys::copy_stack(thread, ROOM)
    };
    match copied.map_err(CaptureError::Os)? {
        Some(copied) => {
            let addresses = Tables::new().walk(copied.registers, &copied.words);
            Ok(Stack::new(addresses, sleep))
        }
        None if sleep != sys::Sleep::default() => Ok(Stack::new(Vec::new(), sleep)),
        None => Err(CaptureError::NoAnswer),
    }
}
