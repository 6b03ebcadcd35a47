//! Readiness to wait for, and readiness found.

use std::{
    fmt,
    ops::{BitAnd, BitOr, BitOrAssign, Sub},
};

use crate::{
    reactor,
    reactor::{Direction, Directions},
};

/// The readiness to wait for: readable, writable, or whichever comes first.
///
/// Priority data (`EPOLLPRI`) counts as readable. An error counts as both.
///
/// ```
/// use tourbillon::io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// assert_eq!(both.remove(Interest::READABLE), Some(Interest::WRITABLE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest(pub(crate) Directions);

impl Interest {
    /// There is data to read, or the end of the stream.
    pub const READABLE: Self = Self(Directions::READ);
    /// There is room to write, or the reader is gone.
    pub const WRITABLE: Self = Self(Directions::WRITE);

    /// Returns whether this includes readable.
    pub fn is_readable(self) -> bool {
        self.0.has(Direction::Read)
    }

    /// Returns whether this includes writable.
    pub fn is_writable(self) -> bool {
        self.0.has(Direction::Write)
    }

    /// Returns the union of both, as `|` does.
    #[must_use = "answers another interest"]
    #[expect(clippy::should_implement_trait, reason = "the name that tokio has")]
    pub fn add(self, other: Self) -> Self {
        Self(self.0.and(other.0))
    }

    /// Returns this interest without `other`, or `None` if nothing is left.
    #[must_use = "answers another interest"]
    pub fn remove(self, other: Self) -> Option<Self> {
        self.0.without(other.0).map(Self)
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.add(other)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_readable(), self.is_writable()) {
            (true, true) => "READABLE | WRITABLE",
            (true, false) => "READABLE",
            (false, _) => "WRITABLE",
        })
    }
}

/// The readiness that was found, limited to what was waited for.
///
/// It is the last known state: an operation may still return `WouldBlock`.
///
/// ```
/// use tourbillon::io::Ready;
///
/// let ready = Ready::READABLE | Ready::READ_CLOSED;
/// assert!(ready.is_readable() && ready.is_read_closed() && !ready.is_writable());
/// assert_eq!(ready - Ready::READ_CLOSED, Ready::READABLE);
/// assert!(Ready::EMPTY.is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ready(u8);

impl Ready {
    /// No readiness.
    pub const EMPTY: Self = Self(0);
    /// There is data to read.
    pub const READABLE: Self = Self(1);
    /// There is room to write.
    pub const WRITABLE: Self = Self(2);
    /// Reads find the end of the stream or an error after the remaining data.
    pub const READ_CLOSED: Self = Self(4);
    /// Writes find an error.
    pub const WRITE_CLOSED: Self = Self(8);
    /// All flags.
    pub const ALL: Self = Self(15);

    /// Converts the part of `ready` that `interest` includes.
    pub(crate) fn of(ready: reactor::Ready, interest: Interest) -> Self {
        let mut found = Self::EMPTY;
        let kinds = [
            (Direction::Read, Self::READABLE, Self::READ_CLOSED),
            (Direction::Write, Self::WRITABLE, Self::WRITE_CLOSED),
        ];
        for (direction, open, closed) in kinds {
            if interest.0.has(direction) && ready.lets(direction) {
                found |= open;
                if ready.is_closed(direction) {
                    found |= closed;
                }
            }
        }
        found
    }

    /// Returns the directions of the flags.
    pub(super) fn directions(self) -> Option<Directions> {
        match (self.is_readable(), self.is_writable()) {
            (true, true) => Some(Directions::BOTH),
            (true, false) => Some(Directions::READ),
            (false, true) => Some(Directions::WRITE),
            (false, false) => None,
        }
    }

    /// Returns whether no flag is set.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Returns whether a read may succeed or find the end of the stream.
    pub fn is_readable(self) -> bool {
        !(self & (Self::READABLE | Self::READ_CLOSED)).is_empty()
    }

    /// Returns whether a write may succeed, or find an error.
    pub fn is_writable(self) -> bool {
        !(self & (Self::WRITABLE | Self::WRITE_CLOSED)).is_empty()
    }

    /// Returns whether reads find the end of the stream or an error after the remaining data.
    pub fn is_read_closed(self) -> bool {
        !(self & Self::READ_CLOSED).is_empty()
    }

    /// Returns whether writes find an error.
    pub fn is_write_closed(self) -> bool {
        !(self & Self::WRITE_CLOSED).is_empty()
    }
}

impl BitOr for Ready {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl BitAnd for Ready {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Ready {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("is_readable", &self.is_readable())
            .field("is_writable", &self.is_writable())
            .field("is_read_closed", &self.is_read_closed())
            .field("is_write_closed", &self.is_write_closed())
            .finish()
    }
}
