//! An event that tests of tasks wait for.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

/// An event that any thread can complete.
#[derive(Clone, Default)]
pub struct Event(Arc<Mutex<(bool, Option<Waker>)>>);

impl Event {
    pub fn set(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
