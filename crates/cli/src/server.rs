//! What a server needs of the system: its descriptors, errors of `accept`, and the signals that end
//! it.

use std::{
    fmt::Display,
    future::{Future, poll_fn},
    io,
    pin::pin,
    task::Poll,
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tourbillon::{
    signal::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};

use crate::say::complain;

/// Raises the soft limit of open descriptors to the hard limit, and returns it. Each connection
/// needs one or more, and many systems set the soft limit to 1024.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the limit stays as it is; the next line reads it.
    let _ = setrlimit(Resource::Nofile, limit);
    // `None` means that there is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Delay before the next attempt to accept if the system is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval between two messages.
const SILENCE: Duration = Duration::from_secs(1);

/// The error state of an accept loop.
#[derive(Default)]
pub struct Trouble {
    complained: Option<Instant>,
}

impl Trouble {
    /// Waits until it makes sense to accept again. Returns at once if the error concerns one
    /// connection. Otherwise it prints the error with the number of open connections (at most one
    /// message a second) and sleeps.
    pub async fn outlast(&mut self, error: &io::Error, open: impl Display) {
        if concerns_one_connection(error) {
            return;
        }
        if self.complained.is_none_or(|when| when.elapsed() >= SILENCE) {
            self.complained = Some(Instant::now());
            let hint = match error.raw_os_error() {
                Some(libc::EMFILE) => "; raise the process's limit, `ulimit -n`",
                Some(libc::ENFILE) => "; raise the system's limit, `fs.file-max`",
                _ => "",
            };
            complain(format_args!(
                "cannot accept with {open} open connections, trying again: {error}{hint}"
            ));
        }
        // Meanwhile the connection waits in the listener's queue.
        sleep(PAUSE).await;
    }
}

/// Returns whether only one client is affected, so that the next one can be accepted at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Listens for SIGINT (Ctrl-C) and SIGTERM (from service managers).
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts to listen. From here on the signals do not end the process by themselves.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one of the signals.
    pub async fn recv(&mut self) -> io::Result<()> {
        match first(self.interrupt.recv(), self.terminate.recv()).await {
            First::A(came) | First::B(came) => came,
        }
    }
}

/// The output of the future that finished first.
pub enum First<A, B> {
    /// That of the first future.
    A(A),
    /// That of the second one.
    B(B),
}

/// Waits for the first of two futures, and drops the other.
pub async fn first<A: Future, B: Future>(a: A, b: B) -> First<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        if let Poll::Ready(output) = a.as_mut().poll(cx) {
            return Poll::Ready(First::A(output));
        }
        b.as_mut().poll(cx).map(First::B)
    })
    .await
}
