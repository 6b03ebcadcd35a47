//! What is known of one descriptor, and who waits to know more.
//!
//! ```text
//!  63                                8 7      0
//! ┌───────────────────────────────────┬────────┐
//! │ tick: how many events were seen   │ bits   │
//! └───────────────────────────────────┴────────┘
//! ```
//!
//! An operation that found the descriptor not ready takes back the readiness that it acted on, and
//! only that: if an event came meanwhile, the tick has moved on, and it tries again.

use std::{
    io,
    sync::PoisonError,
    task::{Context, Poll, Waker},
};

use crate::{
    sys::{
        epoll,
        epoll::Event,
        sync::{
            Mutex,
            atomic::{AtomicU64, Ordering},
        },
    },
    util::contained::contained,
};

const READ: u64 = 1;
const WRITE: u64 = 2;
/// Reads will find the end, or an error; final for streams.
const READ_CLOSED: u64 = 4;
/// Writes will find an error; final for streams.
const WRITE_CLOSED: u64 = 8;
/// Final: the runtime is gone.
const SHUTDOWN: u64 = 16;
/// Final: the peer has sent urgent data, where a read stops short of what there is.
const URGENT: u64 = 32;
const BITS: u64 = 0xff;
const TICK: u64 = BITS + 1;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The bits that let an operation try.
    fn mask(self) -> u64 {
        match self {
            Direction::Read => READ | READ_CLOSED,
            Direction::Write => WRITE | WRITE_CLOSED,
        }
    }

    /// The bit that an operation can use up.
    fn usable(self) -> u64 {
        match self {
            Direction::Read => READ,
            Direction::Write => WRITE,
        }
    }
}

/// The directions that are waited for: one, or whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directions {
    read: bool,
    write: bool,
}

impl Directions {
    pub(crate) const READ: Self = Self::of(true, false);
    pub(crate) const WRITE: Self = Self::of(false, true);
    pub(crate) const BOTH: Self = Self::of(true, true);

    const fn of(read: bool, write: bool) -> Self {
        Self { read, write }
    }

    pub(crate) fn has(self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.read,
            Direction::Write => self.write,
        }
    }

    /// Those of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::of(self.read || other.read, self.write || other.write)
    }

    /// Those that `other` has not; nothing, if none is left.
    pub(crate) fn without(self, other: Self) -> Option<Self> {
        let left = Self::of(self.read && !other.read, self.write && !other.write);
        (left.read || left.write).then_some(left)
    }

    fn bits(self, of: impl Fn(Direction) -> u64) -> u64 {
        let read = if self.read { of(Direction::Read) } else { 0 };
        let write = if self.write { of(Direction::Write) } else { 0 };
        read | write
    }

    fn mask(self) -> u64 {
        self.bits(Direction::mask)
    }

    fn usable(self) -> u64 {
        self.bits(Direction::usable)
    }

    /// What epoll is to look for.
    pub(crate) fn conditions(self) -> u32 {
        let read = epoll::READABLE | epoll::PRIORITY | epoll::READ_CLOSED;
        let write = epoll::WRITABLE;
        (if self.read { read } else { 0 }) | (if self.write { write } else { 0 })
    }
}

impl From<Direction> for Directions {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Read => Self::READ,
            Direction::Write => Self::WRITE,
        }
    }
}

/// What was known of a descriptor as of some event; evidence that it was ready, where it was waited
/// for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready(u64);

impl Ready {
    pub(crate) const NOTHING: Self = Self(0);

    /// As of such conditions.
    pub(crate) fn by(conditions: u32) -> Self {
        Self(bits(|which| conditions & which != 0))
    }

    /// Whether an operation may try.
    pub(crate) fn lets(self, direction: Direction) -> bool {
        self.0 & direction.mask() != 0
    }

    /// Whether it is final: operations find the end, or an error.
    pub(crate) fn is_closed(self, direction: Direction) -> bool {
        self.0 & (direction.mask() & !direction.usable()) != 0
    }

    /// Whether a read that does not fill its buffer may have left something.
    pub(super) fn reads_stop_short(self) -> bool {
        self.0 & URGENT != 0
    }
}

/// What the conditions that hold of a descriptor make of it.
fn bits(holds: impl Fn(u32) -> bool) -> u64 {
    let mut bits = 0;
    if holds(epoll::READABLE) {
        bits |= READ;
    }
    if holds(epoll::PRIORITY) {
        bits |= READ | URGENT;
    }
    if holds(epoll::WRITABLE) {
        bits |= WRITE;
    }
    if holds(epoll::READ_CLOSED) {
        bits |= READ | READ_CLOSED;
    }
    if holds(epoll::ERROR) {
        // Not the end: the error queue of a socket that lives is announced by it, too.
        bits |= READ | WRITE;
    }
    if holds(epoll::CLOSED) {
        bits |= READ | READ_CLOSED | WRITE | WRITE_CLOSED;
    }
    bits
}

/// The readiness of one descriptor.
#[derive(Debug)]
pub(crate) struct Readiness {
    word: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// Who is woken when something happens.
#[derive(Debug, Default)]
struct Waiting {
    /// Those that poll: one task in each direction, the last to ask.
    polled: [Option<Waker>; 2],
    /// Those that wait by a [`Waiter`]: as many as like to.
    waiters: Vec<(u64, Directions, Waker)>,
    /// The last waiter's number.
    last: u64,
}

impl Readiness {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    fn add(&self, bits: u64, wakers: &mut Vec<Waker>) {
        let update = |word: u64| Some((word | bits).wrapping_add(TICK));
        // Cannot fail: the update always has an answer.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        self.collect(
            |directions| bits & (directions.mask() | SHUTDOWN) != 0,
            wakers,
        );
    }

    /// Takes the wakers of those who wait for what is `woken`.
    fn collect(&self, woken: impl Fn(Directions) -> bool, wakers: &mut Vec<Waker>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for direction in [Direction::Read, Direction::Write] {
            if woken(direction.into()) {
                wakers.extend(waiting.polled[direction as usize].take());
            }
        }
        let waiters = std::mem::take(&mut waiting.waiters);
        for (number, directions, waker) in waiters {
            if woken(directions) {
                wakers.push(waker);
            } else {
                waiting.waiters.push((number, directions, waker));
            }
        }
    }

    /// Notes an event, and collects who waited for it.
    pub(super) fn set(&self, event: &Event, wakers: &mut Vec<Waker>) {
        self.add(bits(|conditions| event.is(conditions)), wakers);
    }

    /// Fails what waits and what comes.
    pub(super) fn close(&self, wakers: &mut Vec<Waker>) {
        self.add(SHUTDOWN, wakers);
    }

    /// Wakes who waits for a direction, to ask again.
    pub(super) fn rouse(&self, direction: Direction) {
        let mut wakers = Vec::new();
        self.collect(|directions| directions.has(direction), &mut wakers);
        for waker in wakers {
            // Foreign code. One that panics keeps no other from being woken.
            contained(|| waker.wake());
        }
    }

    /// Whether an operation may try; if not, `cx` is woken when it may, unless another task polls for
    /// the same direction meanwhile.
    pub(crate) fn poll(&self, cx: &Context<'_>, direction: Direction) -> Poll<io::Result<Ready>> {
        self.poll_with(direction.into(), |waiting| {
            match &mut waiting.polled[direction as usize] {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            }
        })
    }

    fn poll_with(
        &self,
        directions: Directions,
        wait: impl FnOnce(&mut Waiting),
    ) -> Poll<io::Result<Ready>> {
        if let Some(answer) = self.look(directions) {
            return Poll::Ready(answer);
        }
        wait(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        // Who set it before the waker was there woke nobody.
        self.look(directions).map_or(Poll::Pending, Poll::Ready)
    }

    fn look(&self, directions: Directions) -> Option<io::Result<Ready>> {
        match self.now() {
            Ok(ready) => (ready.0 & directions.mask() != 0).then_some(Ok(ready)),
            Err(error) => Some(Err(error)),
        }
    }

    /// What is known, which may be nothing; for who tries without waiting.
    pub(crate) fn now(&self) -> io::Result<Ready> {
        let word = self.word.load(Ordering::Acquire);
        if word & SHUTDOWN != 0 {
            return Err(super::shut_down());
        }
        Ok(Ready(word))
    }

    /// Takes back the readiness that an operation found used up, unless an event came since. The end of a
    /// stream stays.
    pub(crate) fn clear(&self, ready: Ready, directions: impl Into<Directions>) {
        self.take_back(ready, directions.into().usable());
    }

    /// The same after an operation that would block, of what seemed to be the end, too: there are
    /// descriptors for which it is none, as a FIFO that the next writer opens.
    pub(crate) fn clear_blocked(&self, ready: Ready, directions: impl Into<Directions>) {
        self.take_back(ready, directions.into().mask());
    }

    fn take_back(&self, ready: Ready, bits: u64) {
        // The other direction may have used up its own meanwhile; the tick says if it was an event.
        let update = |word: u64| (word & !BITS == ready.0 & !BITS).then_some(word & !bits);
        // An error means that an event came: there is something to find.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }
}

/// One of many that wait for a descriptor, each to be woken. Waits no more when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    readiness: &'a Readiness,
    /// Zero before it has waited.
    number: u64,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(readiness: &'a Readiness) -> Self {
        Self {
            readiness,
            number: 0,
        }
    }

    /// As [`Readiness::poll`], for any number of tasks.
    pub(crate) fn poll(
        &mut self,
        cx: &Context<'_>,
        directions: Directions,
    ) -> Poll<io::Result<Ready>> {
        self.readiness.poll_with(directions, |waiting| {
            if self.number == 0 {
                waiting.last += 1;
                self.number = waiting.last;
            }
            let number = self.number;
            match waiting.waiters.iter_mut().find(|(n, ..)| *n == number) {
                Some((_, _, waker)) => waker.clone_from(cx.waker()),
                None => {
                    let waker = cx.waker().clone();
                    waiting.waiters.push((number, directions, waker));
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
            // Foreign code is dropped under no lock.
            drop(waiting);
            drop(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(wakers.len(), 1, "who asked is woken");
        let ready = poll(&readiness, Direction::Read).unwrap();
        readiness.add(READ, &mut wakers);
        readiness.clear(ready, Direction::Read);
        let ready = poll(&readiness, Direction::Read).expect("the second event stands");
        readiness.clear(ready, Direction::Read);
        assert!(poll(&readiness, Direction::Read).is_none());
    }

    #[test]
    fn the_directions_are_used_up_one_by_one() {
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
    fn who_waits_for_either_direction_is_woken_by_the_first() {
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
            assert!(ready.lets(direction) && !ready.is_closed(direction));
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
    fn what_blocks_is_not_the_end() {
        let readiness = Readiness::new();
        readiness.add(READ | READ_CLOSED | WRITE | WRITE_CLOSED, &mut Vec::new());
        let ready = poll(&readiness, Direction::Read).unwrap();
        readiness.clear_blocked(ready, Direction::Read);
        assert!(poll(&readiness, Direction::Read).is_none());
        assert!(poll(&readiness, Direction::Write).is_some());
        readiness.add(READ, &mut Vec::new());
        assert!(poll(&readiness, Direction::Read).is_some());
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
