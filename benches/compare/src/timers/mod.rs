//! Many pending timers of one system, behind one interface.
//!
//! Each system has its own type of timer. A `VecDeque` holds them. Sleeps are `Pin<Box<…>>`,
//! which is how safe code holds many of them.

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

/// Pending timers, in the order in which they were armed.
pub trait Timers: Default + Send + 'static {
    /// Arms a timer that is due after `delay`. This reads the clock, like `sleep(delay)`.
    ///
    /// `cx` is the context of the task that arms the timer. A sleep takes the waker from it.
    fn arm(&mut self, cx: &mut Context<'_>, delay: Duration);

    /// Cancels the timer that was armed first.
    fn cancel_oldest(&mut self);

    /// Puts the timers in random order, as if they had been armed in this order.
    fn shuffle(&mut self, draw: &mut Draw);
}

/// A point in time, in the type that a system uses for deadlines.
pub trait Moment:
    Copy + Add<Duration, Output = Self> + AddAssign<Duration> + Send + Sync + 'static
{
    /// Reads the clock of the system.
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

/// Timers that can be reset.
pub trait Movable: Timers {
    /// Type of a deadline.
    type Instant: Moment;

    /// Resets the timer at `index` to `deadline`.
    fn reset(&mut self, index: usize, deadline: Self::Instant);

    /// Resets the timer at `index` to `delay` from now: one reading of the clock, and one reset.
    ///
    /// `delay` must be that of the last [`prolong`](Movable::prolong) of this timer, since
    /// Tourbillon stores the delay with the timer.
    fn refresh(&mut self, index: usize, delay: Duration);

    /// Resets the timer at `index` to `delay` from now, and makes `delay` its delay for each
    /// later [`refresh`](Movable::refresh).
    fn prolong(&mut self, index: usize, delay: Duration) {
        self.refresh(index, delay);
    }
}

/// A system's future that completes at its deadline.
pub trait Sleeping: Future + Send + Sized + 'static {
    /// Type of a deadline.
    type Instant: Moment;

    /// Creates a sleep that completes `delay` from now.
    fn after(delay: Duration) -> Self;

    /// Creates a sleep that completes at `deadline`.
    fn until(deadline: Self::Instant) -> Self;

    /// Resets the sleep to `deadline`.
    fn reset(self: Pin<&mut Self>, deadline: Self::Instant);
}

impl Sleeping for tourbillon::time::Sleep {
    type Instant = tourbillon::time::Instant;

    fn after(delay: Duration) -> Self {
        tourbillon::time::sleep(delay)
    }

    fn until(deadline: Self::Instant) -> Self {
        tourbillon::time::sleep_until(deadline)
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

    fn until(deadline: Self::Instant) -> Self {
        tokio::time::sleep_until(deadline)
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

    fn until(deadline: Self::Instant) -> Self {
        smol::Timer::at(deadline)
    }

    fn reset(self: Pin<&mut Self>, deadline: Self::Instant) {
        self.get_mut().set_at(deadline);
    }
}

/// Pending sleeps. Each has been polled once.
pub struct Sleeps<S>(VecDeque<Pin<Box<S>>>);

impl<S> Default for Sleeps<S> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<S: Sleeping> Timers for Sleeps<S> {
    fn arm(&mut self, cx: &mut Context<'_>, delay: Duration) {
        self.0.push_back(armed(cx, S::after(delay)));
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

/// Pending sleeps, as libraries make them: until an instant that they calculate.
pub struct SleepsUntil<S>(Sleeps<S>);

impl<S> Default for SleepsUntil<S> {
    fn default() -> Self {
        Self(Sleeps::default())
    }
}

impl<S: Sleeping> Timers for SleepsUntil<S> {
    fn arm(&mut self, cx: &mut Context<'_>, delay: Duration) {
        let sleep = S::until(S::Instant::now() + delay);
        self.0.0.push_back(armed(cx, sleep));
    }

    fn cancel_oldest(&mut self) {
        self.0.cancel_oldest();
    }

    fn shuffle(&mut self, draw: &mut Draw) {
        self.0.shuffle(draw);
    }
}

/// Returns a sleep that has been polled once, which registers it.
///
/// A task of tokio must call this without a budget: once a budget is used up, a poll returns
/// `Pending` but does not register the sleep.
///
/// # Panics
///
/// Panics if the sleep is ready at once.
pub fn armed<S: Sleeping>(cx: &mut Context<'_>, sleep: S) -> Pin<Box<S>> {
    let mut sleep = Box::pin(sleep);
    assert!(matches!(sleep.as_mut().poll(cx), Poll::Pending), "it waits");
    sleep
}

/// Tourbillon's callbacks, which run without a task.
#[derive(Default)]
pub struct Callbacks(VecDeque<tourbillon::Timer>);

impl Timers for Callbacks {
    fn arm(&mut self, _: &mut Context<'_>, delay: Duration) {
        self.0.push_back(tourbillon::after(delay, || {}));
    }

    fn cancel_oldest(&mut self) {
        let oldest = self.0.pop_front().expect("one is pending");
        assert_eq!(oldest.cancel(), tourbillon::timer::Cancel::Cancelled);
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
        self.0[index].reset_after(delay);
    }
}

/// Tourbillon's callbacks, as libraries arm them: at an instant of the standard library that they
/// calculate.
#[derive(Default)]
pub struct CallbacksAt(Callbacks);

impl Timers for CallbacksAt {
    fn arm(&mut self, _: &mut Context<'_>, delay: Duration) {
        let deadline = std::time::Instant::now() + delay;
        self.0.0.push_back(tourbillon::at(deadline, || {}));
    }

    fn cancel_oldest(&mut self) {
        self.0.cancel_oldest();
    }

    fn shuffle(&mut self, draw: &mut Draw) {
        self.0.shuffle(draw);
    }
}

/// The timers of one `DelayQueue`. No task polls the queue while timers are added, and no timer
/// is due.
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
        // The queue's own `reset(key, delay)` does the same.
        self.queue
            .reset_at(&self.keys[index], tokio::time::Instant::now() + delay);
    }
}

/// A generator of pseudo-random delays and positions (MINSTD). All systems get the same sequence.
pub struct Draw(u64);

impl Draw {
    /// Creates a generator with a fixed seed.
    pub fn new() -> Self {
        Self(1)
    }

    /// Returns the next number, from 1 to 2^31 − 2.
    fn next(&mut self) -> u64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0
    }

    /// Returns a delay from 1 s to 59 s.
    pub fn delay(&mut self) -> Duration {
        Duration::from_secs(1) + Duration::from_nanos(self.next() * 27)
    }

    /// Returns a number below `n`. If `n` is not much smaller than 2^31, the numbers are not
    /// equally likely.
    pub fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).expect("usize has 64 bits");
        usize::try_from((self.next() * n) >> 31).expect("it is less than n")
    }

    /// Puts the items in random order (Fisher–Yates).
    fn shuffle<T>(&mut self, some: &mut VecDeque<T>) {
        for last in (1..some.len()).rev() {
            some.swap(last, self.below(last + 1));
        }
    }
}
