//! The stream of events: each snapshot is written once, and all who listen are sent the same bytes.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use ::hyper::body::{Body, Bytes, Frame};
use slab::Slab;

use super::listener::Flow;
use crate::{runtime::lock, sync::Notify};

/// What those who listen are sent. A reference: clones are the same feed.
#[derive(Clone, Debug)]
pub(super) struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How many may listen.
    most: usize,
    /// Told when the first listens.
    first: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many events there were.
    number: u64,
    /// The newest, while somebody listens.
    latest: Option<Bytes>,
    /// Who listens, each with its task if it waits.
    listeners: Slab<Option<Waker>>,
    is_closed: bool,
    /// What those who listen are told before their streams end, if anything.
    last: Option<Bytes>,
}

impl State {
    fn wakers(&mut self) -> Vec<Waker> {
        let waiting = self.listeners.iter_mut();
        waiting.filter_map(|(_, waker)| waker.take()).collect()
    }
}

impl Feed {
    /// One for so many listeners at most.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            first: Notify::new(),
            state: Mutex::default(),
        }))
    }

    /// Returns how many listen.
    pub(super) fn listeners(&self) -> usize {
        lock(&self.0.state).listeners.len()
    }

    /// Waits until somebody listens. For one task.
    pub(super) async fn wait_for_listeners(&self) {
        while self.listeners() == 0 {
            self.0.first.notified().await;
        }
    }

    /// Listens, if there is room for one more. A client that does not take what it is sent misses
    /// events, and has the newest when it goes on.
    pub(super) fn listen(&self, flow: Flow) -> Option<Listener> {
        let mut state = lock(&self.0.state);
        if state.listeners.len() >= self.0.most || state.is_closed {
            return None;
        }
        let key = state.listeners.insert(None);
        let is_first = state.listeners.len() == 1;
        drop(state);
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

    /// Sends an event to all who listen.
    pub(super) fn send(&self, event: Bytes) {
        let mut state = lock(&self.0.state);
        // Who listens next is not to be told what was long ago.
        if state.listeners.is_empty() {
            return;
        }
        state.number += 1;
        state.latest = Some(event);
        let wakers = state.wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the streams of all who listen, after the event `last` if there is one, and refuses
    /// others.
    pub(super) fn close(&self, last: Option<Bytes>) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        state.last = last;
        let wakers = state.wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// One who listens: the body of a response.
#[derive(Debug)]
pub(super) struct Listener {
    feed: Feed,
    key: usize,
    /// The number of the event that it was sent last.
    seen: u64,
    /// Whether it was sent what is sent last.
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
        let mut state = lock(&this.feed.0.state);
        if state.is_closed {
            let last = state.last.clone().filter(|_| !this.has_last);
            this.has_last = true;
            return Poll::Ready(last.map(|last| Ok(Frame::data(last))));
        }
        // What is given to hyper is kept until it is written. Who does not take the last event is
        // given no other, and asked again at the next.
        if state.number > this.seen && !this.flow.is_stuck() {
            if let Some(latest) = &state.latest {
                this.seen = state.number;
                return Poll::Ready(Some(Ok(Frame::data(latest.clone()))));
            }
        }
        state.listeners[this.key] = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = lock(&self.feed.0.state);
        let _ = state.listeners.try_remove(self.key);
        if state.listeners.is_empty() {
            state.latest = None;
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn all_have_each_event_once_and_the_newest_first() {
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
    fn there_is_room_for_so_many_and_again_when_one_is_gone() {
        let feed = Feed::new(1);
        let first = feed.listen(Flow::default()).unwrap();
        assert!(feed.listen(Flow::default()).is_none());
        feed.send(Bytes::from_static(b"old"));
        drop(first);
        assert_eq!(feed.listeners(), 0);
        // Of what was sent to others it hears nothing.
        feed.send(Bytes::from_static(b"unheard"));
        let mut second = feed.listen(Flow::default()).unwrap();
        assert_eq!(next(&mut second), Poll::Pending);
    }

    #[test]
    fn who_takes_nothing_is_given_nothing_and_then_the_newest() {
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
    fn what_is_said_last_is_said_once_to_each() {
        let feed = Feed::new(2);
        let mut listeners = [(); 2].map(|()| feed.listen(Flow::default()).unwrap());
        feed.send(Bytes::from_static(b"unheard"));
        feed.close(Some(Bytes::from_static(b"end")));
        for listener in &mut listeners {
            assert_eq!(next(listener), event("end"));
            assert_eq!(next(listener), Poll::Ready(None));
        }
    }
}
