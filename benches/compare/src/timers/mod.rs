//! Many pending timers of one system, behind one interface.
//!
//! Each system has its own kind of timer; all stand in a `VecDeque`, sleeps as `Pin<Box<…>>`, which is
//! how safe code holds many of them.

pub mod books;
mod run;

use std::{
    collections::VecDeque,
    future::Future,
    ops::{Add, AddAssign},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

pub use run::{Runtime, in_steps, on};

/// Pending timers, from the one armed first to the one armed last.
///
/// `cx` is of the task that the timers are armed in: a sleep takes its waker.
pub trait Timers: Default + Send + 'static {
    /// Arms one more. The clock is read, as `sleep(delay)` does it.
    fn arm(&mut self, cx: &mut Context<'_>, delay: Duration);

    /// Cancels the one armed first.
    fn cancel_oldest(&mut self);

    /// Lets them count as armed in another order.
    fn shuffle(&mut self, draw: &mut Draw);
}

/// A moment, in the type in which a system takes it.
pub trait Moment:
    Copy + Add<Duration, Output = Self> + AddAssign<Duration> + Send + Sync + 'static
{
    fn now() -> Self;
}

impl Moment for tourbillon::time::Instant {
    fn now() -> Self {
        Self::now()
    }
}

impl Moment for tokio::time::Instant {
    fn now() -> Self {
        Self::now()
    }
}

impl Moment for std::time::Instant {
    fn now() -> Self {
        Self::now()
    }
}

/// Timers that can be moved.
pub trait Movable: Timers {
    type Instant: Moment;

    /// Moves one, by its place, to an instant.
    fn reset(&mut self, index: usize, deadline: Self::Instant);

    /// Moves one so far from now: a reading of the clock, and a move. `delay` is that of the last
    /// [`prolong`](Movable::prolong): ours has it with the timer.
    fn refresh(&mut self, index: usize, delay: Duration);

    /// Moves one so far from now, and lets it have this delay from now on.
    fn prolong(&mut self, index: usize, delay: Duration) {
        self.refresh(index, delay);
    }
}

/// A system's future that ends when its time has come.
pub trait Sleeping: Future + Send + Sized + 'static {
    type Instant: Moment;

    fn after(delay: Duration) -> Self;

    fn reset(self: Pin<&mut Self>, deadline: Self::Instant);
}

impl Sleeping for tourbillon::time::Sleep {
    type Instant = tourbillon::time::Instant;

    fn after(delay: Duration) -> Self {
        tourbillon::time::sleep(delay)
    }

    fn reset(self: Pin<&mut Self>, deadline: Self::Instant) {
        self.reset(deadline);
    }
}

impl Sleeping for tokio::time::Sleep {
    type Instant = tokio::time::Instant;

    fn after(delay: Duration) -> Self {
        tokio::time::sleep(delay)
    }

    fn reset(self: Pin<&mut Self>, deadline: Self::Instant) {
        self.reset(deadline);
    }
}

impl Sleeping for smol::Timer {
    type Instant = std::time::Instant;

    fn after(delay: Duration) -> Self {
        smol::Timer::after(delay)
    }

    fn reset(self: Pin<&mut Self>, deadline: Self::Instant) {
        self.get_mut().set_at(deadline);
    }
}

/// Sleeps that have been polled once, and wait.
pub struct Sleeps<S>(VecDeque<Pin<Box<S>>>);

impl<S> Default for Sleeps<S> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<S: Sleeping> Timers for Sleeps<S> {
    fn arm(&mut self, cx: &mut Context<'_>, delay: Duration) {
        self.0.push_back(armed(cx, delay));
    }

    fn cancel_oldest(&mut self) {
        drop(self.0.pop_front());
    }

    fn shuffle(&mut self, draw: &mut Draw) {
        draw.shuffle(&mut self.0);
    }
}

impl<S: Sleeping> Movable for Sleeps<S> {
    type Instant = S::Instant;

    fn reset(&mut self, index: usize, deadline: S::Instant) {
        self.0[index].as_mut().reset(deadline);
    }

    fn refresh(&mut self, index: usize, delay: Duration) {
        self.0[index].as_mut().reset(S::Instant::now() + delay);
    }
}

/// A sleep that has been polled once.
pub fn armed<S: Sleeping>(cx: &mut Context<'_>, delay: Duration) -> Pin<Box<S>> {
    let mut sleep = Box::pin(S::after(delay));
    // Otherwise it has not been registered: tokio's budget is used up, say.
    assert!(matches!(sleep.as_mut().poll(cx), Poll::Pending), "it waits");
    sleep
}

/// Ours without a task.
#[derive(Default)]
pub struct Callbacks(VecDeque<tourbillon::Timer>);

impl Timers for Callbacks {
    fn arm(&mut self, _: &mut Context<'_>, delay: Duration) {
        self.0.push_back(tourbillon::after(delay, || {}));
    }

    fn cancel_oldest(&mut self) {
        let oldest = self.0.pop_front().expect("one is pending");
        assert_eq!(oldest.cancel(), tourbillon::Cancel::Cancelled);
    }

    fn shuffle(&mut self, draw: &mut Draw) {
        draw.shuffle(&mut self.0);
    }
}

impl Movable for Callbacks {
    type Instant = tourbillon::time::Instant;

    fn reset(&mut self, index: usize, deadline: Self::Instant) {
        self.0[index].reset_at(deadline);
    }

    fn refresh(&mut self, index: usize, _: Duration) {
        self.0[index].refresh();
    }

    fn prolong(&mut self, index: usize, delay: Duration) {
        self.0[index].reset(delay);
    }
}

/// The timers of one `DelayQueue`. No task polls it while they are added, and none of them is due.
#[derive(Default)]
pub struct Queue {
    queue: tokio_util::time::DelayQueue<()>,
    keys: VecDeque<tokio_util::time::delay_queue::Key>,
}

impl Timers for Queue {
    fn arm(&mut self, _: &mut Context<'_>, delay: Duration) {
        self.keys.push_back(self.queue.insert((), delay));
    }

    fn cancel_oldest(&mut self) {
        let oldest = self.keys.pop_front().expect("one is pending");
        self.queue.remove(&oldest);
    }

    fn shuffle(&mut self, draw: &mut Draw) {
        draw.shuffle(&mut self.keys);
    }
}

impl Movable for Queue {
    type Instant = tokio::time::Instant;

    fn reset(&mut self, index: usize, deadline: Self::Instant) {
        self.queue.reset_at(&self.keys[index], deadline);
    }

    fn refresh(&mut self, index: usize, delay: Duration) {
        // As the queue's own `reset(key, delay)` does.
        self.queue
            .reset_at(&self.keys[index], tokio::time::Instant::now() + delay);
    }
}

/// Delays and places, by MINSTD: alike for all systems.
pub struct Draw(u64);

impl Draw {
    pub fn new() -> Self {
        Self(1)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0
    }

    /// From 1 to 59 s.
    pub fn delay(&mut self) -> Duration {
        Duration::from_secs(1) + Duration::from_nanos(self.next() * 27)
    }

    /// Less than `n`, for which 2^31 is much.
    pub fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).expect("usize has 64 bits");
        usize::try_from((self.next() * n) >> 31).expect("it is less than n")
    }

    /// Puts them in another order (Fisher and Yates).
    fn shuffle<T>(&mut self, some: &mut VecDeque<T>) {
        for last in (1..some.len()).rev() {
            some.swap(last, self.below(last + 1));
        }
    }
}
