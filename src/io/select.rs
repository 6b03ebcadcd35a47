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
    sys::poll::{Asked, ask},
    time::{sleep, sleep::Sleep},
    util::budget,
};

/// A descriptor that may be waited for, and for what.
type Sourced<'a> = (&'a dyn Source, Interest);

/// How many descriptors are asked by one system call.
const BATCH: usize = 64;

/// Waits until some of the descriptors are ready, for `timeout` at most: `poll(2)`, as a future, with one
/// timer for all.
///
/// Answers which are, by their places in the list and in its order, and what for: all that are at that
/// moment, by what the system says then. So what has been read to the end of what there was is not ready, whatever
/// was known of it. Nothing is read or taken: who gives up the future, or is beaten by another task to what
/// there is, has lost nothing. An empty answer says that the time is over; it counts from this call. With a
/// timeout of zero it looks, and does not wait.
///
/// It is for a handful of descriptors, of which it looks at each whenever it is woken. One that appears
/// twice is two. For thousands, spawn tasks.
///
/// # Errors
///
/// If the runtime of one of them is shut down, or that of the calling thread, which has the timer; if an
/// [`AsyncFd`](crate::io::async_fd::AsyncFd) is not watched for what is waited for; and `InvalidInput` for an empty list
/// without a timeout, which would wait for ever.
///
/// # Panics
///
/// If it has to wait outside of a runtime, for a `timeout`.
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
    /// One for each source, once it has to wait.
    waiters: Vec<Waiter<'a>>,
    limit: Limit,
}

/// How long it waits.
#[derive(Debug)]
enum Limit {
    None,
    Zero,
    Until(Sleep),
}

impl Select<'_> {
    /// Those that are ready. Of the others, what was known is taken back.
    fn look(&self) -> io::Result<Vec<(usize, Ready)>> {
        let mut found = Vec::new();
        let mut asked = [Asked::NOTHING; BATCH];
        let mut seen = [reactor::Ready::NOTHING; BATCH];
        for (batch, sources) in self.sources.chunks(BATCH).enumerate() {
            for (at, (source, interest)) in sources.iter().enumerate() {
                let watched = source.watched(*interest)?;
                // Before the system is asked: what comes after that is not taken back.
                seen[at] = watched.readiness.now()?;
                asked[at] = Asked::of(watched.fd, interest.0.conditions());
            }
            ask(&mut asked[..sources.len()])?;
            for (at, (source, interest)) in sources.iter().enumerate() {
                let ready = reactor::Ready::by(asked[at].answer());
                let ready = Ready::of(ready, *interest);
                if ready.is_empty() {
                    let readiness = source.watched(*interest)?.readiness;
                    readiness.clear_blocked(seen[at], interest.0);
                } else {
                    found.push((batch * BATCH + at, ready));
                }
            }
        }
        Ok(found)
    }

    /// Waits for all of them; whether an event has come meanwhile.
    fn wait(&mut self, cx: &Context<'_>) -> io::Result<bool> {
        if self.waiters.is_empty() {
            self.waiters.reserve_exact(self.sources.len());
            for (source, interest) in self.sources {
                let readiness = source.watched(*interest)?.readiness;
                self.waiters.push(Waiter::new(readiness));
            }
        }
        let mut came = false;
        for (waiter, (_, interest)) in self.waiters.iter_mut().zip(self.sources) {
            came |= waiter.poll(cx, interest.0).is_ready();
        }
        Ok(came)
    }

    fn poll_found(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<(usize, Ready)>>> {
        if self.sources.is_empty() && matches!(self.limit, Limit::None) {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "nothing to wait for: no descriptors, and no timeout",
            )));
        }
        loop {
            let found = self.look()?;
            if !found.is_empty() || matches!(self.limit, Limit::Zero) {
                return Poll::Ready(Ok(found));
            }
            if !self.wait(cx)? {
                break;
            }
        }
        let Limit::Until(sleep) = &mut self.limit else {
            return Poll::Pending;
        };
        ready!(Pin::new(&mut *sleep).poll(cx));
        Poll::Ready(if sleep.is_elapsed() {
            Ok(Vec::new())
        } else {
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
