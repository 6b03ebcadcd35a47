#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! - **Where it runs.** The worker that creates an endpoint watches its socket. Each endpoint and
//!   each connection is a task of its own, which any worker runs. Timers belong to the worker that
//!   polls them, and have nanosecond resolution.
//! - **Packets.** One system call sends several packets (GSO) or receives several (GRO and
//!   `recvmmsg`), with their ECN bits, where the kernel supports it.
//! - **Shutdown.** `Endpoint::close` and then `Endpoint::wait_idle` tell the peers. A runtime that
//!   is shut down first drops the tasks without a word; a peer then notices by its idle timeout.
//!
//! # Paused clocks
//!
//! quinn takes the time from this runtime, so on a [paused clock](tourbillon::time::pause) its
//! timeouts take no real time. Endpoints of one runtime exchange data over the loopback interface
//! while the clock stands still, except for their own pauses, such as between packets. Two limits:
//!
//! - A peer in another runtime or process does not hold the clock. While a task waits for its
//!   packets, the clock jumps from deadline to deadline, and connections time out.
//! - On threads outside of the runtime, quinn sees the system's clock. Call it in tasks.

#![warn(missing_debug_implementations)]

mod socket;

use std::{
    future::Future,
    io,
    net::UdpSocket,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant as StdInstant,
};

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime};
use tourbillon::time::{Instant, Sleep, sleep_until};

use self::socket::Socket;

/// A runtime for quinn that uses the tasks, timers and sockets of the current runtime.
///
/// # Errors
///
/// `Endpoint::new` and `Endpoint::rebind` fail outside of a runtime.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TourbillonRuntime;

impl TourbillonRuntime {
    /// Creates a runtime for quinn.
    pub fn new() -> Self {
        Self
    }
}

impl Runtime for TourbillonRuntime {
    fn new_timer(&self, deadline: StdInstant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(sleep_until(deadline.into())))
    }

    #[track_caller]
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        drop(tourbillon::spawn(future));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket)?))
    }

    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }
}

/// A [`Sleep`] with quinn's trait.
#[derive(Debug)]
struct Timer(Sleep);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: StdInstant) {
        Pin::new(&mut self.0).reset(deadline.into());
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}
