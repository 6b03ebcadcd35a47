//! The event stream. Each snapshot is serialized once, and all listeners get the same bytes.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use hyper::body::{Body, Bytes, Frame};
use slab::Slab;
use tourbillon::sync::Notify;
use tourbillon_sync::{foreign::each, lock};

use crate::listener::Flow;

/// The events and their listeners. Clones refer to one feed.
#[derive(Clone, Debug)]
pub(crate) struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The maximum number of listeners.
    most: usize,
    /// Notified when the first listener arrives.
    first: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of events so far.
    number: u64,
    /// The newest event, while there are listeners.
    latest: Option<Bytes>,
    /// The listeners, each with its waker if it waits.
    listeners: Slab<Option<Waker>>,
    is_closed: bool,
    /// The event that listeners get before their streams end, if any.
    last: Option<Bytes>,
}

impl State {
    fn wakers(&mut self) -> Vec<Waker> {
        let waiting = self.listeners.iter_mut();
        waiting.filter_map(|(_, waker)| waker.take()).collect()
    }
}

impl Feed {
    /// Creates a feed for at most `most` listeners.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            first: Notify::new(),
            state: Mutex::default(),
        }))
    }

    /// Returns the number of listeners.
    pub(crate) fn listeners(&self) -> usize {
        lock(&self.0.state).listeners.len()
    }

    /// Waits until there is a listener. For a single task.
    pub(crate) async fn wait_for_listeners(&self) {
        while self.listeners() == 0 {
            self.0.first.notified().await;
        }
    }

    /// Adds a listener, or returns `None` if there is no room. A client that does not read misses
    /// events, and then gets the newest one.
    pub(crate) fn listen(&self, flow: Flow) -> Option<Listener> {
        let mut state = lock(&self.0.state);
        if state.listeners.len() >= self.0.most || state.is_closed {
            return None;
        }
        let key = state.listeners.insert(None);
        let is_first = state.listeners.len() == 1;
        drop(state);
        // The publisher sleeps while there are no listeners.
        if is_first {
            self.0.first.notify_one();
        }
        Some(Listener {
            feed: self.clone(),
            key,
            seen: 0,
            has_last: false,
            flow,
        })
    }

    /// Sends an event to all listeners.
    pub(crate) fn send(&self, event: Bytes) {
        let mut state = lock(&self.0.state);
        // Without listeners, drop the event: it would be outdated for the next one.
        if state.listeners.is_empty() {
            return;
        }
        state.number += 1;
        state.latest = Some(event);
        let wakers = state.wakers();
        drop(state);
        // Wakers are user code: wake after unlocking.
        each(wakers, Waker::wake);
    }

    /// Ends the streams of all listeners, after the event `last` if there is one, and refuses
    /// further listeners.
    pub(crate) fn close(&self, last: Option<Bytes>) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        state.last = last;
        let wakers = state.wakers();
        drop(state);
        each(wakers, Waker::wake);
    }
}

/// A listener, which is the body of a response.
#[derive(Debug)]
pub(crate) struct Listener {
    feed: Feed,
    key: usize,
    /// The number of the last event it got.
    seen: u64,
    /// Whether it got the event `last`.
    has_last: bool,
    flow: Flow,
}

impl Body for Listener {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        // Wakers are user code: clone before locking, drop after unlocking.
        let waker = cx.waker().clone();
        let mut state = lock(&this.feed.0.state);
        if state.is_closed {
            // Each listener gets the last event once, and then the end of the stream.
            let last = state.last.clone().filter(|_| !this.has_last);
            this.has_last = true;
            return Poll::Ready(last.map(|last| Ok(Frame::data(last))));
        }
        // hyper keeps a frame until it is written. So give a client that does not read no further
        // frame until the next event.
        if state.number > this.seen && !this.flow.is_stuck() {
            if let Some(latest) = &state.latest {
                this.seen = state.number;
                return Poll::Ready(Some(Ok(Frame::data(latest.clone()))));
            }
        }
        let before = state.listeners[this.key].replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = lock(&self.feed.0.state);
        let waker = state.listeners.try_remove(self.key);
        // The next listener should not begin with an old event.
        if state.listeners.is_empty() {
            state.latest = None;
        }
        // The waker is user code: drop after unlocking.
        drop(state);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind, panic_any},
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::Wake,
    };

    use super::*;

    fn next(listener: &mut Listener) -> Poll<Option<Bytes>> {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(listener).poll_frame(&mut cx).map(|frame| {
            frame.map(|frame| match frame {
                Ok(frame) => frame.into_data().unwrap(),
                Err(never) => match never {},
            })
        })
    }

    fn event(text: &'static str) -> Poll<Option<Bytes>> {
        Poll::Ready(Some(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn each_listener_gets_the_newest_event_once() {
        let feed = Feed::new(2);
        let mut first = feed.listen(Flow::default()).unwrap();
        assert_eq!(next(&mut first), Poll::Pending);
        feed.send(Bytes::from_static(b"a"));
        feed.send(Bytes::from_static(b"b"));
        let mut second = feed.listen(Flow::default()).unwrap();
        for listener in [&mut first, &mut second] {
            assert_eq!(next(listener), event("b"));
            assert_eq!(next(listener), Poll::Pending);
        }
    }

    #[test]
    fn a_full_feed_has_room_after_a_listener_leaves() {
        let feed = Feed::new(1);
        let first = feed.listen(Flow::default()).unwrap();
        assert!(feed.listen(Flow::default()).is_none());
        feed.send(Bytes::from_static(b"old"));
        drop(first);
        assert_eq!(feed.listeners(), 0);
        // A new listener gets no earlier event.
        feed.send(Bytes::from_static(b"unheard"));
        let mut second = feed.listen(Flow::default()).unwrap();
        assert_eq!(next(&mut second), Poll::Pending);
    }

    #[test]
    fn a_stuck_listener_gets_the_newest_event_later() {
        let feed = Feed::new(1);
        let flow = Flow::default();
        let mut slow = feed.listen(flow.clone()).unwrap();
        feed.send(Bytes::from_static(b"a"));
        assert_eq!(next(&mut slow), event("a"));
        flow.set_stuck(true);
        for text in ["b", "c", "d"] {
            feed.send(Bytes::from_static(text.as_bytes()));
            assert_eq!(next(&mut slow), Poll::Pending);
        }
        flow.set_stuck(false);
        assert_eq!(next(&mut slow), event("d"));
        assert_eq!(next(&mut slow), Poll::Pending);
    }

    #[test]
    fn a_feed_that_is_closed_ends() {
        let feed = Feed::new(2);
        let mut listener = feed.listen(Flow::default()).unwrap();
        feed.close(None);
        assert_eq!(next(&mut listener), Poll::Ready(None));
        assert!(feed.listen(Flow::default()).is_none());
    }

    #[test]
    fn the_last_event_reaches_each_listener_once() {
        let feed = Feed::new(2);
        let mut listeners = [(); 2].map(|()| feed.listen(Flow::default()).unwrap());
        feed.send(Bytes::from_static(b"unheard"));
        feed.close(Some(Bytes::from_static(b"end")));
        for listener in &mut listeners {
            assert_eq!(next(listener), event("end"));
            assert_eq!(next(listener), Poll::Ready(None));
        }
    }

    /// A waker that asks when it is dropped whether the feed is locked.
    struct Asks(Feed, Arc<AtomicUsize>);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Asks {
        fn drop(&mut self) {
            assert!(self.0.0.state.try_lock().is_ok(), "the feed is locked");
            self.1.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn no_waker_is_dropped_under_the_lock() {
        let (feed, drops) = (Feed::new(1), Arc::new(AtomicUsize::new(0)));
        let mut listener = feed.listen(Flow::default()).unwrap();
        let mut wait = || {
            let waker = Waker::from(Arc::new(Asks(feed.clone(), drops.clone())));
            let cx = &mut Context::from_waker(&waker);
            Pin::new(&mut listener).poll_frame(cx).is_pending()
        };
        assert!(wait() && wait());
        assert_eq!(drops.load(Relaxed), 1, "replaced");
        drop(listener);
        assert_eq!(drops.load(Relaxed), 2, "with its listener");
    }

    #[test]
    fn each_listener_is_woken_although_the_wakers_of_others_panic() {
        /// A payload whose destructor panics as well.
        struct Twice;
        impl Drop for Twice {
            fn drop(&mut self) {
                panic!("the payload panics when it is dropped");
            }
        }
        struct Counts(AtomicUsize, fn());
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
                self.1();
            }
        }
        let wakes = [
            || panic_any(1),
            || panic_any(Twice),
            || panic_any(Twice),
            || (),
        ];
        let woken = wakes.map(|wake: fn()| Arc::new(Counts(AtomicUsize::new(0), wake)));
        let feed = Feed::new(4);
        let mut listeners = woken.clone().map(|counts| {
            let mut listener = feed.listen(Flow::default()).unwrap();
            let waker = Waker::from(counts);
            let cx = &mut Context::from_waker(&waker);
            assert!(Pin::new(&mut listener).poll_frame(cx).is_pending());
            listener
        });
        let sent = catch_unwind(AssertUnwindSafe(|| feed.send(Bytes::from_static(b"a"))));
        assert_eq!(sent.unwrap_err().downcast_ref(), Some(&1), "the first one");
        assert!(woken.iter().all(|counts| counts.0.load(Relaxed) == 1));
        for listener in &mut listeners {
            assert_eq!(next(listener), event("a"));
        }
    }

    #[test]
    fn a_feed_that_is_closed_while_its_thread_unwinds_adds_no_panic() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic_any("the waker panics");
            }
        }
        struct Closes(Feed);
        impl Drop for Closes {
            fn drop(&mut self) {
                self.0.close(None);
            }
        }
        let feed = Feed::new(1);
        let mut listener = feed.listen(Flow::default()).unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let cx = &mut Context::from_waker(&waker);
        assert!(Pin::new(&mut listener).poll_frame(cx).is_pending());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _closes = Closes(feed);
            panic_any(7);
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(next(&mut listener), Poll::Ready(None));
    }
}
