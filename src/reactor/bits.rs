//! The bits of readiness: what an event reports, what an operation uses up, and what a task waits
//! for.

use crate::sys::epoll;

pub(super) const READ: u64 = 1;
pub(super) const WRITE: u64 = 2;
/// Reads find the end of the stream or an error. Final for streams.
pub(super) const READ_CLOSED: u64 = 4;
/// Writes find an error. Final for streams.
pub(super) const WRITE_CLOSED: u64 = 8;
/// The runtime has shut down. Final.
pub(super) const SHUTDOWN: u64 = 16;
/// The peer has sent urgent data, at which a read stops early. Final.
const URGENT: u64 = 32;
/// The peer has sent urgent data, or a device has priority data. Only waits for priority use it up.
const PRIORITY: u64 = 64;
/// Reads find the end of the stream or an error, and a wait for priority has not seen this yet.
const PRIORITY_END: u64 = 128;
/// There is an error, or an entry in the error queue of the socket.
const ERROR: u64 = 256;

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What to wait for: any of both directions, priority data and errors.
///
/// The value has the bits that operations can use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directions(pub(super) u64);

impl Directions {
    pub(crate) const READ: Self = Self(READ);
    pub(crate) const WRITE: Self = Self(WRITE);
    pub(crate) const PRIORITY: Self = Self(PRIORITY);
    pub(crate) const ERROR: Self = Self(ERROR);
    pub(crate) const BOTH: Self = Self(READ | WRITE);

    pub(crate) fn has(self, direction: Direction) -> bool {
        self.includes(direction.into())
    }

    /// Returns whether this has something of `other`.
    pub(crate) const fn includes(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether there is one alone.
    pub(super) const fn are_one(self) -> bool {
        self.0.is_power_of_two()
    }

    /// Returns the union of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this without `other`, or `None` if nothing is left.
    pub(crate) const fn without(self, other: Self) -> Option<Self> {
        match self.0 & !other.0 {
            0 => None,
            left => Some(Self(left)),
        }
    }

    /// Combines the values that belong to each part of this.
    const fn sum(self, read: u64, write: u64, priority: u64, error: u64) -> u64 {
        (if self.0 & READ != 0 { read } else { 0 })
            | (if self.0 & WRITE != 0 { write } else { 0 })
            | (if self.0 & PRIORITY != 0 { priority } else { 0 })
            | (if self.0 & ERROR != 0 { error } else { 0 })
    }

    /// Returns the bits that allow an operation to try.
    pub(super) const fn mask(self) -> u64 {
        self.sum(
            READ | READ_CLOSED,
            WRITE | WRITE_CLOSED,
            PRIORITY | PRIORITY_END,
            ERROR,
        )
    }

    /// Returns the epoll conditions to watch for. Errors are always watched.
    pub(crate) const fn conditions(self) -> u32 {
        let read = epoll::READABLE | epoll::PRIORITY | epoll::READ_CLOSED;
        self.sum(
            read as u64,
            epoll::WRITABLE as u64,
            (epoll::PRIORITY | epoll::READ_CLOSED) as u64,
            0,
        ) as u32
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

/// A snapshot of the readiness, which proves to `clear` which events an operation has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready(pub(super) u64);

impl Ready {
    pub(crate) const NOTHING: Self = Self(0);

    /// Converts epoll conditions.
    pub(crate) fn by(conditions: u32) -> Self {
        Self(bits(|which| conditions & which != 0))
    }

    /// Returns whether there is something that operations can use up.
    pub(crate) fn is_open(self, directions: Directions) -> bool {
        self.0 & directions.0 != 0
    }

    /// Returns whether the direction is closed: operations find the end of the stream, or an error.
    pub(crate) fn is_closed(self, directions: Directions) -> bool {
        self.0 & (directions.mask() & !directions.0) != 0
    }

    /// Returns whether a read that does not fill its buffer may have left data.
    pub(crate) fn reads_stop_short(self) -> bool {
        self.0 & URGENT != 0
    }
}

/// Converts epoll conditions to readiness bits. `holds` tells whether a condition is set.
pub(super) fn bits(holds: impl Fn(u32) -> bool) -> u64 {
    let mut bits = 0;
    if holds(epoll::READABLE) {
        bits |= READ;
    }
    if holds(epoll::PRIORITY) {
        // A read stops at urgent data, so a short read does not mean that nothing is left.
        bits |= READ | URGENT | PRIORITY;
    }
    if holds(epoll::WRITABLE) {
        bits |= WRITE;
    }
    if holds(epoll::READ_CLOSED) {
        // A read must run to find the end of the stream.
        bits |= READ | READ_CLOSED | PRIORITY_END;
    }
    if holds(epoll::ERROR) {
        // An error is not the end: a socket that works also reports entries in its error queue so.
        bits |= READ | WRITE | ERROR;
    }
    if holds(epoll::CLOSED) {
        // Both halves are closed: operations return at once, with the end or an error.
        bits |= READ | READ_CLOSED | PRIORITY_END | WRITE | WRITE_CLOSED;
    }
    bits
}
