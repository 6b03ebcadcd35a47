//! Connecting to a host with several addresses.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tourbillon::time::{Sleep, sleep};

/// Orders addresses so that IPv4 and IPv6 take turns, beginning with the first address's family
/// (RFC 8305, section 4). Each family keeps its order.
pub(super) fn take_turns(addrs: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_with_v4 = addrs.first().is_some_and(SocketAddr::is_ipv4);
    let is_first_family = |addr: &SocketAddr| addr.is_ipv4() == begins_with_v4;
    let (one, other): (Vec<_>, Vec<_>) = addrs.into_iter().partition(is_first_family);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut turns = Vec::new();
    loop {
        match (one.next(), other.next()) {
            (None, None) => return turns,
            (first, second) => turns.extend(first.into_iter().chain(second)),
        }
    }
}

/// Attempts addresses in their order until one succeeds, and drops the other attempts then.
///
/// The next attempt begins when one fails. It also begins `delay` after the one before it, beside
/// all attempts that still run (RFC 8305, section 5). Without a delay there is one at a time.
///
/// # Errors
///
/// Returns the last error with its address, or `None` if there are no addresses.
pub(super) async fn race<T, F>(
    addrs: Vec<SocketAddr>,
    delay: Option<Duration>,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, Option<(SocketAddr, io::Error)>>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = addrs.into_iter();
    let mut attempts = Attempts {
        running: Vec::new(),
        last_error: None,
    };
    let mut pause: Option<Sleep> = None;
    poll_fn(|cx| {
        loop {
            // 1. Take the first connection.
            let failed = match attempts.poll(cx) {
                Poll::Ready(Ok(connected)) => return Poll::Ready(Ok(connected)),
                Poll::Ready(Err(())) => true,
                Poll::Pending => false,
            };
            // 2. Wait, unless the next attempt is due.
            let mut paused = || match &mut pause {
                Some(pause) => Pin::new(pause).poll(cx).is_pending(),
                None => true,
            };
            if !attempts.running.is_empty() && !failed && paused() {
                return Poll::Pending;
            }
            // 3. Begin it. The loop polls it, so that it can wake this task.
            pause = None;
            match waiting.next() {
                Some(addr) => {
                    attempts.running.push((addr, Box::pin(attempt(addr))));
                    pause = delay.map(sleep);
                }
                None if attempts.running.is_empty() => {
                    return Poll::Ready(Err(attempts.last_error.take()));
                }
                None => return Poll::Pending,
            }
        }
    })
    .await
}

/// The attempts that run, and the last error.
struct Attempts<F> {
    running: Vec<(SocketAddr, Pin<Box<F>>)>,
    last_error: Option<(SocketAddr, io::Error)>,
}

impl<T, F: Future<Output = io::Result<T>>> Attempts<F> {
    /// Returns the first connection, or an error if an attempt failed and none succeeded.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, ()>> {
        let mut polled = Poll::Pending;
        let mut at = 0;
        while let Some((addr, attempt)) = self.running.get_mut(at) {
            match attempt.as_mut().poll(cx) {
                Poll::Ready(Ok(connected)) => return Poll::Ready(Ok(connected)),
                Poll::Ready(Err(error)) => {
                    self.last_error = Some((*addr, error));
                    drop(self.running.remove(at));
                    polled = Poll::Ready(Err(()));
                }
                Poll::Pending => at += 1,
            }
        }
        polled
    }
}

#[cfg(test)]
#[path = "race_tests.rs"]
mod tests;
