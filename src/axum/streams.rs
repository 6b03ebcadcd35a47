//! Streams of HTTP/2: each is reset if its client does not take the response that is there.
//!
//! hyper answers each request in a task of its own, and waits there for the client's window. It
//! takes a piece of the body before there is room for it, and hands a piece of any size to the
//! connection as soon as there is room for one byte. So three sides know a part:
//!
//! | who | what it does |
//! |---|---|
//! | the body ([`Sending::give`]) | counts the bytes that hyper has taken of it, and gives no more while many are unsent |
//! | a [`Piece`] of it | counts those that the connection has written, or dropped |
//! | the task ([`Task`]) | drops the stream if too few were written in the time, which resets it and frees what it held |
//!
//! A body does not say that it ends while much of it is unsent: its task would end, and nobody
//! could reset the stream any more. What is left then, [`FEW`] bytes at most, goes with the
//! connection.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use ::axum::body::Bytes;
use ::hyper::{body::Buf, rt::Executor};

use super::requests::{Answering, Requests};
use crate::time::{Instant, Sleep, sleep};

/// How many bytes may be left unsent when a body goes on, or ends.
const FEW: u64 = 32 * 1024;

thread_local! {
    /// The response whose stream is spawned next on this thread. hyper spawns it as soon as the
    /// service was called, and nothing comes between.
    static NEXT: Cell<Option<Arc<Sending>>> = const { Cell::new(None) };

    /// What the next upgraded stream that is spawned on this thread has to keep. hyper spawns what
    /// sends it in the poll in which the stream's task was answered.
    static UPGRADED: Cell<Option<Answering>> = const { Cell::new(None) };
}

/// Says that the stream whose task is being polled is upgraded: its connection is not idle until
/// what sends it has ended, which is when the program drops it, or the client resets it.
pub(super) fn upgrades(answering: Answering) {
    UPGRADED.set(Some(answering));
}

/// How much of a response was given to hyper, and how much of that the client took.
pub(super) struct Sending {
    requests: Arc<Requests>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    given: u64,
    taken: u64,
    /// The task, while its body waits until few bytes are unsent.
    waker: Option<Waker>,
}

impl Counts {
    fn unsent(&self) -> u64 {
        self.given - self.taken
    }
}

impl Sending {
    /// The response to a request that the service is called with: its stream is the next that is
    /// spawned on this thread.
    pub(super) fn begin(requests: &Arc<Requests>) -> Arc<Self> {
        let sending = Arc::new(Self {
            requests: requests.clone(),
            counts: Mutex::default(),
        });
        NEXT.set(Some(sending.clone()));
        sending
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a piece as given.
    pub(super) fn give(self: &Arc<Self>, bytes: Bytes) -> Piece {
        self.lock().given += bytes.len() as u64;
        Piece {
            bytes,
            sending: Some(self.clone()),
        }
    }

    /// Returns whether many bytes are unsent.
    pub(super) fn has_many(&self) -> bool {
        self.lock().unsent() > FEW
    }

    /// Ready when few bytes are unsent.
    pub(super) fn poll_few(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut counts = self.lock();
        if counts.unsent() <= FEW {
            return Poll::Ready(());
        }
        counts.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn took(&self, bytes: usize) {
        let mut counts = self.lock();
        counts.taken += bytes as u64;
        let waker = match counts.unsent() <= FEW {
            true => counts.waker.take(),
            false => None,
        };
        drop(counts);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.requests.took(bytes);
    }
}

/// A piece of a body. By HTTP/2 it tells what becomes of it.
pub(super) struct Piece {
    bytes: Bytes,
    sending: Option<Arc<Sending>>,
}

impl Piece {
    /// A piece that nobody has to hear of.
    pub(super) fn plain(bytes: Bytes) -> Self {
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

/// Spawns what hyper wants to have spawned, and the streams of HTTP/2 as [`Task`]s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        match NEXT.take() {
            Some(sending) => drop(crate::spawn(Task {
                stream: future,
                sending,
                wait: None,
            })),
            // What an upgraded stream sends.
            None => {
                let answering = UPGRADED.take();
                drop(crate::spawn(async move {
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
    /// While bytes are unsent, or since they were.
    wait: Option<Wait>,
}

/// A wait for the client.
struct Wait {
    timer: Sleep,
    /// When it was armed.
    since: Instant,
    /// How many bytes have to be taken before the timer comes up.
    enough: u64,
}

impl<F: Future> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `stream` is not moved out of `self`, here or in a `Drop`, and nothing else is
        // pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `stream` is pinned whenever `self` is, see above.
        let stream = unsafe { Pin::new_unchecked(&mut this.stream) };
        let polled = stream.poll(cx);
        // If the client has reset the stream meanwhile, hyper does not upgrade it.
        drop(UPGRADED.take());
        if polled.is_ready() {
            return Poll::Ready(());
        }
        // Done with the stream, the task drops it: a stream that nobody holds is reset.
        this.sending.poll_stuck(&mut this.wait, cx)
    }
}

impl Sending {
    /// Ready when the client has taken too little for too long. A response that has nothing to send
    /// waits for no client.
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
                    // All that is there is enough, too: what comes next may come much later.
                    let enough = counts.taken + counts.unsent().min(pace.least);
                    drop(counts);
                    let timer = sleep(limit);
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
                    // The socket took too little for any stream in all that time: whether the
                    // client takes it then is for the connection to see.
                    let is_held_up = || self.requests.stuck_since().is_some_and(|it| it <= *since);
                    // Not elapsed and over: the runtime is.
                    if !timer.is_elapsed() || self.lock().taken < *enough && !is_held_up() {
                        return Poll::Ready(());
                    }
                    *wait = None;
                }
            }
        }
    }
}
