//! The signals that end a server.

use std::io;

use futures_lite::future::or;
use tourbillon::signal::{Signal, SignalKind, signal};

/// Ctrl-C (SIGINT), and what service managers send (SIGTERM).
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens for them from now on: they end the process no more.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one of them.
    pub async fn recv(&mut self) -> io::Result<()> {
        or(self.interrupt.recv(), self.terminate.recv()).await
    }
}
