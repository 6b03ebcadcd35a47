//! Waiting for any of several descriptors.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    io::{
        interest::{Interest, Ready},
        source::Source,
    },
    reactor,
    reactor::readiness::Waiter,
    sys::poll::{PollEntry, poll_now},
    time::{sleep, sleep::Sleep},
    util::budget,
};

/// A source, and the readiness to wait for.
type Sourced<'a> = (&'a dyn Source, Interest);

/// The maximum number of descriptors per system call.
const BATCH: usize = 64;

/// Waits until any of several descriptors is ready, for at most `timeout`. This is `poll(2)` as a
/// future, with one timer for all.
///
/// Returns the index and the readiness of each ready source, in the order of the list. The
/// readiness is what the system reports at that moment. So a descriptor whose data has all been
/// read is not ready, whatever was known before. `select` reads and takes nothing: dropping the
/// future loses no data.
///
/// An empty result means that `timeout` has passed. It counts from the call of this function. With
/// a timeout of zero, the future checks once and does not wait.
///
/// `select` checks every source each time it is woken, so use it for a handful of descriptors. For
/// thousands, spawn tasks. A source may appear twice.
///
/// # Errors
///
/// Fails if the runtime of a source or of the calling thread, which has the timer, is shut down.
/// Fails if an [`AsyncFd`](super::AsyncFd) is not watched for the given interest. Returns
/// `InvalidInput` for an empty list without a timeout, which would wait forever.
///
/// # Panics
///
/// Panics if it has to wait for a `timeout` outside of a runtime.
///
/// ```
/// use std::time::Duration;
/// use futures_lite::AsyncWriteExt;
/// use tourbillon::{io::{Interest, select}, net::{UdpSocket, UnixStream}};
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let socket = UdpSocket::bind("127.0.0.1:0").await?;
/// let (stream, mut peer) = UnixStream::pair()?;
/// let sources = [(&socket as _, Interest::READABLE), (&stream as _, Interest::READABLE)];
///
/// let none = select(&sources, Some(Duration::from_millis(1))).await?;
/// assert!(none.is_empty());
///
/// peer.write_all(b"hello").await?;
/// for (place, ready) in select(&sources, None).await? {
///     assert!(place == 1 && ready.is_readable());
///     assert_eq!(stream.try_read(&mut [0; 100])?, 5);
/// }
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
pub fn select<'a>(
    sources: &'a [(&'a dyn Source, Interest)],
    timeout: Option<Duration>,
) -> Select<'a> {
    let limit = match timeout {
        None => Limit::None,
        Some(Duration::ZERO) => Limit::Zero,
        Some(timeout) => Limit::Until(sleep(timeout)),
    };
    Select {
        sources,
        waiters: Vec::new(),
        limit,
    }
}

/// The future of [`select`].
#[must_use = "futures do nothing unless polled"]
pub struct Select<'a> {
    sources: &'a [Sourced<'a>],
    /// One per source; empty until the future has to wait.
    waiters: Vec<Waiter<'a>>,
    limit: Limit,
}

/// The limit on the wait.
#[derive(Debug)]
enum Limit {
    None,
    Zero,
    Until(Sleep),
}

impl Select<'_> {
    /// Asks the system which sources are ready, and clears the recorded readiness of the others.
    fn check_sources(&self) -> io::Result<Vec<(usize, Ready)>> {
        let mut found = Vec::new();
        let mut entries = [PollEntry::NOTHING; BATCH];
        let mut seen = [reactor::Ready::NOTHING; BATCH];
        for (batch, sources) in self.sources.chunks(BATCH).enumerate() {
            for (at, (source, interest)) in sources.iter().enumerate() {
                let watched = source.watched(*interest)?;
                // Read the recorded readiness before asking the system. An event after this read
                // changes the tick, so `clear_denied` keeps it.
                seen[at] = watched.readiness.now()?;
                entries[at] = PollEntry::of(watched.fd, interest.0.conditions());
            }
            poll_now(&mut entries[..sources.len()])?;
            for (at, (source, interest)) in sources.iter().enumerate() {
                let ready = reactor::Ready::by(entries[at].answer());
                let ready = Ready::of(ready, *interest);
                if ready.is_empty() {
                    // Not ready: clear the record, or `wait` would return at once.
                    let readiness = source.watched(*interest)?.readiness;
                    readiness.clear_denied(seen[at], interest.0);
                } else {
                    found.push((batch * BATCH + at, ready));
                }
            }
        }
        Ok(found)
    }

    /// Registers a waiter with each source. Returns whether an event has arrived meanwhile.
    fn wait(&mut self, cx: &Context<'_>) -> io::Result<bool> {
        if self.waiters.is_empty() {
            self.waiters.reserve_exact(self.sources.len());
            for (source, interest) in self.sources {
                let readiness = source.watched(*interest)?.readiness;
                self.waiters.push(Waiter::new(readiness));
            }
        }
        let mut came = false;
        // Poll every waiter, even after the first event, so that each has the current waker.
        for (waiter, (_, interest)) in self.waiters.iter_mut().zip(self.sources) {
            came |= waiter.poll(cx, interest.0).is_ready();
        }
        Ok(came)
    }

    fn poll_found(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<(usize, Ready)>>> {
        if self.sources.is_empty() && matches!(self.limit, Limit::None) {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "nothing to wait for: pass at least one descriptor, or a timeout",
            )));
        }
        // An event may arrive between the check and the registration: check again then.
        loop {
            let found = self.check_sources()?;
            if !found.is_empty() || matches!(self.limit, Limit::Zero) {
                return Poll::Ready(Ok(found));
            }
            if !self.wait(cx)? {
                break;
            }
            // Only now poll the timer, which arms it: many calls never wait.
        }
        let Limit::Until(sleep) = &mut self.limit else {
            return Poll::Pending;
        };
        ready!(Pin::new(&mut *sleep).poll(cx));
        Poll::Ready(if sleep.is_elapsed() {
            Ok(Vec::new())
        } else {
            // A sleep that ends without being elapsed tells of a shutdown.
            Err(reactor::shut_down())
        })
    }
}

impl Future for Select<'_> {
    type Output = io::Result<Vec<(usize, Ready)>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(budget::check(cx));
        let found = ready!(self.poll_found(cx));
        budget::spend();
        Poll::Ready(found)
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select")
            .field("sources", &self.sources.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
