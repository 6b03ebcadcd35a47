//! The queue of ended tasks of a `JoinSet`, and the waker of the task that waits for it.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use crate::{sys::sync::Mutex, util::lock::lock};

/// Queue of the slots whose tasks have ended.
#[derive(Default)]
pub(super) struct Ended(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    places: VecDeque<usize>,
    /// Woken when a slot is queued.
    waiter: Option<Waker>,
}

impl Ended {
    fn push(&self, place: usize) {
        let waiter = {
            let mut queue = lock(&self.0);
            queue.places.push_back(place);
            queue.waiter.take()
        };
        // Wake after unlocking: wakers are user code.
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub(super) fn pop(&self) -> Option<usize> {
        lock(&self.0).places.pop_front()
    }

    pub(super) fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(place) = self.pop() {
            return Poll::Ready(place);
        }
        // Clone before locking: cloning and dropping a waker is user code.
        let waker = cx.waker().clone();
        let _before = {
            let mut queue = lock(&self.0);
            // A task may have ended since the first look, and has found no waiter. So look again
            // under the lock.
            if let Some(place) = queue.places.pop_front() {
                return Poll::Ready(place);
            }
            queue.waiter.replace(waker)
        };
        Poll::Pending
    }

    pub(super) fn take_waiter(&self) -> Option<Waker> {
        lock(&self.0).waiter.take()
    }
}

/// The waker of one slot: it queues the slot.
struct Place {
    ended: Arc<Ended>,
    place: usize,
}

/// Returns a waker that queues slot `place`.
pub(super) fn waker(ended: &Arc<Ended>, place: usize) -> Waker {
    let ended = ended.clone();
    Waker::from(Arc::new(Place { ended, place }))
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.ended.push(self.place);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ended.push(self.place);
    }
}
