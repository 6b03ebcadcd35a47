//! HTTP/2 streams with a time limit: a stream is reset if its client does not take its response.
//!
//! hyper answers each request in its own task, which waits for the client's flow control window. It
//! takes a piece of the body before there is room for it. It passes a piece of any size to the
//! connection as soon as there is room for one byte. So three parties each know a part:
//!
//! | party | task |
//! |---|---|
//! | the body ([`Sending::give`]) | counts bytes given to hyper; pauses while many are unsent |
//! | a [`Piece`] of it | counts bytes that the connection has written or dropped |
//! | the stream's task ([`Task`]) | drops, and so resets, a stream that is too slow |
//!
//! A body does not report its end while many bytes are unsent: its task would end, and then nothing
//! could reset the stream. The remaining bytes, at most [`FEW`], are covered by the connection's
//! limit.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use axum::body::Bytes;
use hyper::{body::Buf, rt::Executor};
use tourbillon::time::Instant;
use tourbillon_hyper::TolerantSleep;

use crate::requests::{Answering, Requests};

/// The number of bytes that may be unsent when a body continues or ends.
const FEW: u64 = 32 * 1024;

thread_local! {
    /// The response whose stream is spawned next on this thread. hyper spawns a stream right after
    /// it calls the service, with nothing in between.
    static NEXT: Cell<Option<Arc<Sending>>> = const { Cell::new(None) };

    /// The request of the next upgraded stream that is spawned on this thread. hyper spawns the
    /// sender of an upgraded stream in the poll that answers the request.
    static UPGRADED: Cell<Option<Answering>> = const { Cell::new(None) };
}

/// Marks the stream whose task is being polled as upgraded. Its request stays in progress until its
/// sender has ended: when the program drops it, or the client resets it.
pub(crate) fn upgrades(answering: Answering) {
    UPGRADED.set(Some(answering));
}

/// Counts how much of a response hyper has taken, and how much of that the client has taken.
pub(crate) struct Sending {
    requests: Arc<Requests>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    given: u64,
    taken: u64,
    /// The waker of the body's task, while it waits until few bytes are unsent.
    waker: Option<Waker>,
}

impl Counts {
    fn unsent(&self) -> u64 {
        self.given - self.taken
    }
}

impl Sending {
    /// Creates the counter of a response when its service is called. The next stream spawned on
    /// this thread belongs to it.
    pub(crate) fn begin(requests: &Arc<Requests>) -> Arc<Self> {
        let sending = Arc::new(Self {
            requests: requests.clone(),
            counts: Mutex::default(),
        });
        // hyper spawns the stream's task after this call, on this thread. `execute` takes it from
        // here.
        NEXT.set(Some(sending.clone()));
        sending
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a piece as given to hyper.
    pub(crate) fn give(self: &Arc<Self>, bytes: Bytes) -> Piece {
        self.lock().given += bytes.len() as u64;
        Piece {
            bytes,
            sending: Some(self.clone()),
        }
    }

    /// Returns whether many bytes are unsent.
    pub(crate) fn has_many(&self) -> bool {
        self.lock().unsent() > FEW
    }

    /// Returns ready when few bytes are unsent.
    pub(crate) fn poll_few(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Wakers are user code: clone before locking, drop after unlocking.
        let waker = cx.waker().clone();
        let mut counts = self.lock();
        if counts.unsent() <= FEW {
            return Poll::Ready(());
        }
        // Stored under the lock, so that `took` either finds the waker or has made room before.
        let before = counts.waker.replace(waker);
        drop(counts);
        drop(before);
        Poll::Pending
    }

    fn took(&self, bytes: usize) {
        let mut counts = self.lock();
        counts.taken += bytes as u64;
        // Wake the body only when it may go on.
        let waker = match counts.unsent() <= FEW {
            true => counts.waker.take(),
            false => None,
        };
        // Wakers are user code: wake after unlocking.
        drop(counts);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.requests.took(bytes);
    }
}

/// A piece of a body. With HTTP/2 it counts the bytes that leave it.
pub(crate) struct Piece {
    bytes: Bytes,
    sending: Option<Arc<Sending>>,
}

impl Piece {
    /// Creates a piece that counts nothing, for HTTP/1.
    pub(crate) fn plain(bytes: Bytes) -> Self {
        Self {
            bytes,
            sending: None,
        }
    }

    fn took(&self, bytes: usize) {
        if let Some(sending) = &self.sending {
            sending.took(bytes);
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.took(count);
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        let bytes = self.bytes.split_to(count);
        self.took(count);
        bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.took(self.bytes.len());
        }
    }
}

/// hyper's executor: spawns each HTTP/2 stream as a [`Task`], and other futures as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        match NEXT.take() {
            Some(sending) => drop(tourbillon::spawn(Task {
                stream: future,
                sending,
                wait: None,
            })),
            // This future is the sender of an upgraded stream.
            None => {
                let answering = UPGRADED.take();
                drop(tourbillon::spawn(async move {
                    future.await;
                    drop(answering);
                }));
            }
        }
    }
}

/// The task of a stream. It ends early if the client does not take its response.
struct Task<F> {
    stream: F,
    sending: Arc<Sending>,
    /// Set when bytes are unsent, until its timer fires.
    wait: Option<Wait>,
}

/// A wait for the client.
struct Wait {
    timer: TolerantSleep,
    /// The time at which it was armed.
    since: Instant,
    /// The number of taken bytes that is enough when the timer fires.
    enough: u64,
}

impl<F: Future> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `stream` is never moved out of `self`, neither here nor in a `Drop`. No other
        // field is pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `stream` is pinned because `self` is. See above.
        let stream = unsafe { Pin::new_unchecked(&mut this.stream) };
        let polled = stream.poll(cx);
        // If the client has reset the stream meanwhile, hyper spawns no sender: drop its request.
        drop(UPGRADED.take());
        if polled.is_ready() {
            return Poll::Ready(());
        }
        // When this is ready, the task drops the stream. hyper resets a stream that has no owner.
        this.sending.poll_stuck(&mut this.wait, cx)
    }
}

impl Sending {
    /// Returns ready when the client has taken too little for too long. A response without unsent
    /// bytes does not wait for its client.
    fn poll_stuck(&self, wait: &mut Option<Wait>, cx: &mut Context<'_>) -> Poll<()> {
        let pace = self.requests.write;
        let Some(limit) = pace.limit else {
            return Poll::Pending;
        };
        loop {
            match wait {
                None => {
                    let counts = self.lock();
                    if counts.unsent() == 0 {
                        return Poll::Pending;
                    }
                    // Taking everything that is there is enough, too: the next bytes may come much
                    // later.
                    let enough = counts.taken + counts.unsent().min(pace.least);
                    drop(counts);
                    let timer = pace.wait(limit);
                    let since = Instant::now();
                    *wait = Some(Wait {
                        timer,
                        since,
                        enough,
                    });
                }
                Some(Wait {
                    timer,
                    since,
                    enough,
                }) => {
                    ready!(Pin::new(&mut *timer).poll(cx));
                    // If the socket accepted too little for the whole time, the stream is not at
                    // fault. The connection has its own limit for this.
                    let is_held_up = || self.requests.stuck_since().is_some_and(|it| it <= *since);
                    // If it is complete but not elapsed, the runtime has shut down.
                    if !timer.is_elapsed() || self.lock().taken < *enough && !is_held_up() {
                        return Poll::Ready(());
                    }
                    *wait = None;
                }
            }
        }
    }
}
