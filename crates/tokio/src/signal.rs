//! Unix signals, by Tourbillon.

use std::io;

/// Waits for the next `SIGINT`, as Ctrl+C sends it.
///
/// # Errors
///
/// Returns the operating system's error.
///
/// # Panics
///
/// Panics outside of a runtime, and in one without sockets.
pub async fn ctrl_c() -> io::Result<()> {
    crate::context::need_io();
    tourbillon::signal::ctrl_c().await
}

/// Signals by their kind.
pub mod unix {
    use std::{
        io,
        pin::pin,
        task::{Context, Poll},
    };

    pub use tourbillon::signal::SignalKind;

    /// A stream of one kind of signal.
    #[derive(Debug)]
    pub struct Signal(tourbillon::signal::Signal);

    /// Listens for a kind of signal.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without sockets.
    #[track_caller]
    pub fn signal(kind: SignalKind) -> io::Result<Signal> {
        crate::context::need_io();
        tourbillon::signal::signal(kind).map(Signal)
    }

    impl Signal {
        /// Waits for the next signal. Returns `None` if the runtime has ended.
        pub async fn recv(&mut self) -> Option<()> {
            self.0.recv().await.ok()
        }

        /// Polls for the next signal. Only the last task to poll is woken.
        pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
            // What waits is the signal itself, so this future may end after each poll.
            pin!(self.recv()).poll(cx)
        }
    }
}
