//! The recorded readiness of one descriptor, and the tasks that wait for it.
//!
//! ```text
//!  63                          16 15           0
//! ┌──────────────────────────────┬──────────────┐
//! │ tick: number of events seen  │ bits         │
//! └──────────────────────────────┴──────────────┘
//! ```
//!
//! An operation that returns `WouldBlock` clears exactly the readiness that it acted on. If an
//! event arrived during the operation, the tick has changed: nothing is cleared, and the operation
//! runs again.

use std::{
    io,
    sync::PoisonError,
    task::{Context, Poll, Waker},
};

use super::bits::{Direction, Directions, Ready, SHUTDOWN, bits};
use crate::{
    sys::{
        epoll::Event,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering},
        },
    },
    util::contained::{each, each_or, forget},
};

/// The part of the word with the bits of readiness.
const BITS: u64 = 0xffff;
const TICK: u64 = BITS + 1;

/// The readiness of one descriptor.
#[derive(Debug)]
pub(crate) struct Readiness {
    word: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// The tasks to wake on an event.
#[derive(Debug, Default)]
struct Waiting {
    /// The tasks that poll: at most one per direction, the last one that polled.
    polled: [Option<Waker>; 2],
    /// The tasks that wait through a [`Waiter`], any number.
    waiters: Vec<(u64, Directions, Waker)>,
    /// The number of the last waiter.
    last: u64,
}

/// Drops each waker, even if the destructors of some panic.
impl Drop for Waiting {
    fn drop(&mut self) {
        let polled = self.polled.iter_mut().filter_map(Option::take);
        each(polled.chain(self.waiters.drain(..).map(|it| it.2)), drop);
    }
}

impl Readiness {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Sets `bits`, advances the tick, and collects the wakers that wait for any of `bits`.
    fn add(&self, bits: u64, wakers: &mut Vec<Waker>) {
        let update = |word: u64| Some((word | bits).wrapping_add(TICK));
        // Cannot fail: the closure always returns a value.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        // The bits are set before the wakers are collected. A task stores its waker and then checks
        // the bits again, so one of the two sides sees the other.
        self.collect(
            |directions| bits & (directions.mask() | SHUTDOWN) != 0,
            wakers,
        );
    }

    /// Takes the wakers of the tasks whose directions satisfy `woken`.
    fn collect(&self, woken: impl Fn(Directions) -> bool, wakers: &mut Vec<Waker>) {
        // Only take the wakers out. The caller wakes them after unlocking, because wakers are user
        // code.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for direction in [Direction::Read, Direction::Write] {
            if woken(direction.into()) {
                wakers.extend(waiting.polled[direction as usize].take());
            }
        }
        if waiting.waiters.is_empty() {
            return;
        }
        let waiters = std::mem::take(&mut waiting.waiters);
        for (number, directions, waker) in waiters {
            if woken(directions) {
                // Its task enters a new waker at its next poll, if it still waits.
                wakers.push(waker);
            } else {
                waiting.waiters.push((number, directions, waker));
            }
        }
    }

    /// Calls `see` for each task that waits: with the data of its waker, and what it waits for.
    pub(super) fn see_waiting(&self, mut see: impl FnMut(*const (), Directions)) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for direction in [Direction::Read, Direction::Write] {
            if let Some(waker) = &waiting.polled[direction as usize] {
                see(waker.data(), direction.into());
            }
        }
        for (_, directions, waker) in &waiting.waiters {
            see(waker.data(), *directions);
        }
    }

    /// Records an event, and collects the wakers of the tasks that wait for it.
    pub(super) fn set(&self, event: &Event, wakers: &mut Vec<Waker>) {
        self.add(bits(|conditions| event.is(conditions)), wakers);
    }

    /// Records that `directions` are ready, of a descriptor that no task waits for yet.
    pub(crate) fn assume(&self, directions: Directions) {
        self.add(directions.0, &mut Vec::new());
    }

    /// Fails all current and future waits.
    pub(super) fn close(&self, wakers: &mut Vec<Waker>) {
        self.add(SHUTDOWN, wakers);
    }

    /// Wakes the tasks that wait for a direction, so that they poll again.
    pub(crate) fn wake_all(&self, direction: Direction) {
        let mut wakers = Vec::new();
        self.collect(|directions| directions.has(direction), &mut wakers);
        // Wakers are user code. A panic of one must not keep the others from being woken.
        each_or(wakers, Waker::wake, forget);
    }

    /// Returns the readiness if an operation may try. Otherwise stores the waker of `cx`, replacing
    /// that of another task that polls for this direction.
    #[inline]
    pub(crate) fn poll(&self, cx: &Context<'_>, direction: Direction) -> Poll<io::Result<Ready>> {
        // Most polls find the descriptor ready: they make no call.
        let ready = Ready(self.word.load(Ordering::Acquire));
        let mask = Directions::from(direction).mask();
        if ready.0 & SHUTDOWN == 0 && ready.0 & mask != 0 {
            return Poll::Ready(Ok(ready));
        }
        self.wait(cx, direction)
    }

    /// Stores the waker of `cx` for [`poll`](Readiness::poll), unless the descriptor is ready.
    #[inline(never)]
    fn wait(&self, cx: &Context<'_>, direction: Direction) -> Poll<io::Result<Ready>> {
        self.poll_with(cx, direction.into(), None, |waiting, waker| {
            waiting.polled[direction as usize].replace(waker)
        })
    }

    /// Returns the readiness if it allows `directions`. Otherwise calls `wait` to store the waker
    /// of `cx`. `wait` returns the waker that was there before.
    ///
    /// An end of the stream that is in `blocked` does not allow them until the next event: with
    /// that readiness an operation would block.
    fn poll_with(
        &self,
        cx: &Context<'_>,
        directions: Directions,
        blocked: Option<Ready>,
        wait: impl FnOnce(&mut Waiting, Waker) -> Option<Waker>,
    ) -> Poll<io::Result<Ready>> {
        if let Some(answer) = self.check(directions, blocked) {
            return Poll::Ready(answer);
        }
        // Wakers are user code: clone before locking, and drop the old one after unlocking.
        let waker = cx.waker().clone();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let old = wait(&mut waiting, waker);
        drop(waiting);
        drop(old);
        // Check again: an event before the waker was stored has woken no task.
        self.check(directions, blocked)
            .map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the readiness if it allows `directions`, or the shutdown error.
    fn check(&self, directions: Directions, blocked: Option<Ready>) -> Option<io::Result<Ready>> {
        match self.now() {
            Ok(ready) => {
                let is_new = blocked.is_none_or(|blocked| blocked.0 & !BITS != ready.0 & !BITS);
                let is_allowed = match is_new {
                    true => ready.0 & directions.mask() != 0,
                    false => ready.is_open(directions),
                };
                is_allowed.then_some(Ok(ready))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns the current readiness, which may be none, or the shutdown error.
    pub(crate) fn now(&self) -> io::Result<Ready> {
        let word = self.word.load(Ordering::Acquire);
        if word & SHUTDOWN != 0 {
            return Err(super::shut_down());
        }
        Ok(Ready(word))
    }

    /// Clears the readiness that an operation used up, unless an event has arrived since. The end
    /// of a stream stays.
    pub(crate) fn clear(&self, ready: Ready, directions: impl Into<Directions>) {
        self.clear_bits(ready, directions.into().0);
    }

    /// Clears the readiness after an operation returned `WouldBlock`, unless an event has arrived
    /// since.
    ///
    /// If the operation was of one kind, this includes the end of the stream. Not every end is
    /// final: a FIFO reopens with its next writer. An operation that may have been of several kinds
    /// tells nothing about the end of any: a write may block although there is no more to read.
    pub(crate) fn clear_blocked(&self, ready: Ready, directions: impl Into<Directions>) {
        let directions = directions.into();
        let ends = directions.are_one();
        self.clear_bits(
            ready,
            if ends {
                directions.mask()
            } else {
                directions.0
            },
        );
    }

    /// Clears the readiness, including the end of the stream, after the system has answered that
    /// nothing of `directions` is ready, unless an event has arrived since.
    pub(crate) fn clear_denied(&self, ready: Ready, directions: Directions) {
        self.clear_bits(ready, directions.mask());
    }

    /// Clears `bits` if the tick is still that of `ready`.
    fn clear_bits(&self, ready: Ready, bits: u64) {
        // Compare the tick alone: the other direction may have cleared its own bits meanwhile.
        let update = |word: u64| (word & !BITS == ready.0 & !BITS).then_some(word & !bits);
        // An error means that an event arrived, so there is readiness to keep.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }
}

/// One of any number of tasks that wait for a descriptor. Dropping it stops the wait.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    readiness: &'a Readiness,
    /// Zero until it has waited.
    number: u64,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(readiness: &'a Readiness) -> Self {
        Self {
            readiness,
            number: 0,
        }
    }

    /// Returns the readiness if it allows `directions`; otherwise stores the waker of `cx`.
    pub(crate) fn poll(
        &mut self,
        cx: &Context<'_>,
        directions: Directions,
    ) -> Poll<io::Result<Ready>> {
        self.poll_after(cx, directions, None)
    }

    /// Polls again after an operation returned `WouldBlock` with the readiness `blocked`. If an end
    /// of the stream is all that is left of it, this waits for an event.
    pub(crate) fn poll_after(
        &mut self,
        cx: &Context<'_>,
        directions: Directions,
        blocked: Option<Ready>,
    ) -> Poll<io::Result<Ready>> {
        let readiness = self.readiness;
        readiness.poll_with(cx, directions, blocked, |waiting, new| {
            // Take a number on the first wait, to find the entry again.
            if self.number == 0 {
                waiting.last += 1;
                self.number = waiting.last;
            }
            let number = self.number;
            // An event takes the entry out. Then the task is polled, and enters itself again here.
            match waiting.waiters.iter_mut().find(|(n, ..)| *n == number) {
                Some((_, _, waker)) => Some(std::mem::replace(waker, new)),
                None => {
                    waiting.waiters.push((number, directions, new));
                    None
                }
            }
        })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.number != 0 {
            let mut waiting = self
                .readiness
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let at = waiting
                .waiters
                .iter()
                .position(|(number, ..)| *number == self.number);
            let left = at.map(|at| waiting.waiters.swap_remove(at));
            // Wakers are user code: drop after unlocking.
            drop(waiting);
            drop(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reactor::bits::{READ, READ_CLOSED, WRITE, WRITE_CLOSED},
        sys::epoll,
    };

    fn poll(readiness: &Readiness, direction: Direction) -> Option<Ready> {
        match readiness.poll(&Context::from_waker(Waker::noop()), direction) {
            Poll::Ready(ready) => Some(ready.unwrap()),
            Poll::Pending => None,
        }
    }

    #[test]
    fn an_event_that_comes_during_an_operation_is_not_taken_back() {
        let readiness = Readiness::new();
        let mut wakers = Vec::new();
        assert!(poll(&readiness, Direction::Read).is_none());
        readiness.add(READ, &mut wakers);
        assert_eq!(wakers.len(), 1, "the task that polled is woken");
        let ready = poll(&readiness, Direction::Read).unwrap();
        readiness.add(READ, &mut wakers);
        readiness.clear(ready, Direction::Read);
        let ready = poll(&readiness, Direction::Read).expect("the second event stands");
        readiness.clear(ready, Direction::Read);
        assert!(poll(&readiness, Direction::Read).is_none());
    }

    #[test]
    fn each_direction_is_cleared_alone() {
        let readiness = Readiness::new();
        readiness.add(READ | WRITE, &mut Vec::new());
        let read = poll(&readiness, Direction::Read).unwrap();
        let write = poll(&readiness, Direction::Write).unwrap();
        readiness.clear(read, Direction::Read);
        assert!(poll(&readiness, Direction::Read).is_none());
        assert!(poll(&readiness, Direction::Write).is_some());
        readiness.clear(write, Direction::Write);
        assert!(poll(&readiness, Direction::Write).is_none());
    }

    #[test]
    fn a_waiter_for_both_directions_is_woken_by_the_first_event() {
        let readiness = Readiness::new();
        let cx = Context::from_waker(Waker::noop());
        for (bits, direction) in [(READ, Direction::Read), (WRITE, Direction::Write)] {
            let mut waiter = Waiter::new(&readiness);
            assert!(waiter.poll(&cx, Directions::BOTH).is_pending());
            let mut wakers = Vec::new();
            readiness.add(bits, &mut wakers);
            assert_eq!(wakers.len(), 1);
            let Poll::Ready(Ok(ready)) = waiter.poll(&cx, Directions::BOTH) else {
                panic!("an event came");
            };
            assert!(ready.is_open(direction.into()) && !ready.is_closed(direction.into()));
            readiness.clear(ready, Directions::BOTH);
        }
    }

    #[test]
    fn the_end_of_a_stream_stays() {
        let readiness = Readiness::new();
        readiness.add(READ | READ_CLOSED, &mut Vec::new());
        let ready = poll(&readiness, Direction::Read).unwrap();
        readiness.clear(ready, Direction::Read);
        assert!(poll(&readiness, Direction::Read).is_some());
        assert!(poll(&readiness, Direction::Write).is_none());
    }

    #[test]
    fn would_block_clears_the_end_of_the_stream() {
        let readiness = Readiness::new();
        readiness.add(READ | READ_CLOSED | WRITE | WRITE_CLOSED, &mut Vec::new());
        let ready = poll(&readiness, Direction::Read).unwrap();
        readiness.clear_blocked(ready, Direction::Read);
        assert!(poll(&readiness, Direction::Read).is_none());
        assert!(poll(&readiness, Direction::Write).is_some());
        readiness.add(READ, &mut Vec::new());
        assert!(poll(&readiness, Direction::Read).is_some());
    }

    // A write that would block does not tell that there is something to read again.
    #[test]
    fn an_operation_of_either_kind_that_blocks_keeps_the_end_of_the_stream() {
        let readiness = Readiness::new();
        let cx = Context::from_waker(Waker::noop());
        readiness.add(READ | READ_CLOSED | WRITE, &mut Vec::new());
        let mut waiter = Waiter::new(&readiness);
        let Poll::Ready(Ok(ready)) = waiter.poll(&cx, Directions::BOTH) else {
            panic!("an event came");
        };
        readiness.clear_blocked(ready, Directions::BOTH);
        assert!(poll(&readiness, Direction::Read).is_some());
        assert!(poll(&readiness, Direction::Write).is_none());
        // The task that was blocked does not try again and again. It waits for an event.
        let blocked = Some(ready);
        assert!(
            waiter
                .poll_after(&cx, Directions::BOTH, blocked)
                .is_pending()
        );
        let mut wakers = Vec::new();
        readiness.add(READ | READ_CLOSED, &mut wakers);
        assert_eq!(wakers.len(), 1);
        assert!(waiter.poll_after(&cx, Directions::BOTH, blocked).is_ready());
        // The system has answered that neither is ready.
        readiness.clear_denied(readiness.now().unwrap(), Directions::BOTH);
        assert!(poll(&readiness, Direction::Read).is_none());
    }

    #[test]
    fn a_wait_for_priority_takes_nothing_from_reads() {
        let readiness = Readiness::new();
        let cx = Context::from_waker(Waker::noop());
        let mut waiter = Waiter::new(&readiness);
        let mut wait = || match waiter.poll(&cx, Directions::PRIORITY) {
            Poll::Ready(ready) => Some(ready.unwrap()),
            Poll::Pending => None,
        };
        readiness.add(bits(|it| it & epoll::READABLE != 0), &mut Vec::new());
        assert!(wait().is_none(), "there is data, but none with priority");
        // The last data comes with the end. A read takes the data.
        let mut wakers = Vec::new();
        let last = epoll::READABLE | epoll::READ_CLOSED;
        readiness.add(bits(|it| last & it != 0), &mut wakers);
        assert_eq!(wakers.len(), 1, "the end ends the wait, too");
        let ready = poll(&readiness, Direction::Read).unwrap();
        readiness.clear(ready, Direction::Read);
        // The end is seen once, without a loop, and is still there for a read.
        let ready = wait().unwrap();
        assert!(ready.is_closed(Directions::PRIORITY) && !ready.is_open(Directions::PRIORITY));
        readiness.clear_blocked(ready, Directions::PRIORITY);
        assert!(wait().is_none());
        assert!(poll(&readiness, Direction::Read).is_some());
        readiness.add(bits(|it| it & epoll::PRIORITY != 0), &mut Vec::new());
        assert!(wait().unwrap().is_open(Directions::PRIORITY));
    }

    #[test]
    fn an_error_ends_a_wait_for_errors_alone() {
        let readiness = Readiness::new();
        let cx = Context::from_waker(Waker::noop());
        let mut waiter = Waiter::new(&readiness);
        assert!(waiter.poll(&cx, Directions::ERROR).is_pending());
        readiness.add(READ | WRITE, &mut Vec::new());
        assert!(waiter.poll(&cx, Directions::ERROR).is_pending());
        readiness.add(bits(|it| it & epoll::ERROR != 0), &mut Vec::new());
        let Poll::Ready(Ok(ready)) = waiter.poll(&cx, Directions::ERROR) else {
            panic!("an error came");
        };
        readiness.clear_blocked(ready, Directions::ERROR);
        assert!(waiter.poll(&cx, Directions::ERROR).is_pending());
        assert!(poll(&readiness, Direction::Write).is_some());
    }

    #[test]
    fn a_closed_runtime_fails_both_directions() {
        let readiness = Readiness::new();
        readiness.close(&mut Vec::new());
        let cx = Context::from_waker(Waker::noop());
        for direction in [Direction::Read, Direction::Write] {
            assert!(matches!(
                readiness.poll(&cx, direction),
                Poll::Ready(Err(_))
            ));
        }
    }
}
