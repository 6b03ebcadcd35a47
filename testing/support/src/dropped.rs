//! Futures that are dropped between polls.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// More polls than any of the futures needs.
const MOST_POLLS: usize = 1000;

/// A way to drop a future: after how many polls, and when that comes which it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    polls: usize,
    /// Whether it comes before the drop, if the future is not polled after it.
    is_woken: bool,
}

impl Way {
    /// Returns whether the future is polled before the drop.
    pub fn polls(self) -> bool {
        self.polls > 0
    }

    /// Polls `future`, and drops it. Returns its output if it is ready before that. `event` is what
    /// the future waits for: it comes once, after the first poll or about the drop.
    pub async fn run<F: Future>(self, future: F, event: impl AsyncFnOnce()) -> Option<F::Output> {
        let mut event = Some(event);
        let mut output = None;
        {
            let mut future = pin!(future);
            for poll in 1..=self.polls {
                let is_last = poll == self.polls;
                if let Poll::Ready(ready) = poll_once(future.as_mut()).await {
                    output = Some(ready);
                    break;
                }
                if is_last {
                    break;
                }
                if let Some(event) = event.take() {
                    event().await;
                }
                output = poll_until_woken(future.as_mut()).await;
                if output.is_some() {
                    break;
                }
            }
            if let Some(event) = event.take_if(|_| self.is_woken) {
                event().await;
            }
        }
        if let Some(event) = event {
            event().await;
        }
        output
    }
}

/// Polls a future once.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Polls a future, and waits until it wakes the task if it is not ready.
async fn poll_until_woken<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut is_polled = false;
    poll_fn(|cx| {
        if is_polled {
            return Poll::Ready(None);
        }
        is_polled = true;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Runs `case` for each way to drop its future, until the future is ready before it is dropped.
/// `case` returns whether it was.
pub async fn in_each_way(case: impl AsyncFn(Way) -> bool) {
    for polls in 0..MOST_POLLS {
        let mut is_ready = false;
        for is_woken in [false, true] {
            is_ready |= case(Way { polls, is_woken }).await;
        }
        if is_ready {
            return;
        }
    }
    panic!("the future is never ready");
}
