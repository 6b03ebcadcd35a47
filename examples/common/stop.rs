//! Signals that end a server.

use std::io;

use futures_lite::future::or;
use tourbillon::signal::{Signal, SignalKind, signal};

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
        or(self.interrupt.recv(), self.terminate.recv()).await
    }
}
