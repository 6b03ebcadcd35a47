//! Signals that end the program: Ctrl-C (SIGINT) and SIGTERM.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    task::Poll,
};

use tourbillon::signal::{Signal, SignalKind, signal};

/// Listens for SIGINT and SIGTERM.
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
