//! A task that sleeps until it is woken.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc as Plain,
        atomic::{AtomicUsize as PlainUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use tourbillon_shards::Timer;

use crate::{EventFd, Worker};

/// A task that counts its wake-ups, and sleeps until the next one.
#[derive(Default)]
pub struct Task {
    eventfd: EventFd,
    wakes: PlainUsize,
}

impl Task {
    /// Returns a new task and its waker.
    pub fn new() -> (Plain<Self>, Waker) {
        let task = Plain::new(Self::default());
        (task.clone(), Waker::from(task))
    }

    /// Sleeps until woken.
    pub fn sleep(&self) {
        self.eventfd.sleep();
    }

    /// Returns how often it was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

impl Wake for Task {
    fn wake(self: Plain<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.eventfd.write();
    }
}

/// Waits for the end of a timer as a task would. The timer may have ended before.
pub fn wait_for_the_end(timer: &Timer<Worker>) {
    let (task, waker) = Task::new();
    let mut ended = pin!(timer.ended());
    loop {
        match ended.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result.unwrap(),
            Poll::Pending => task.sleep(),
        }
    }
}
