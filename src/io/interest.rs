//! Readiness to wait for, and readiness found.

use std::{
    fmt,
    ops::{BitAnd, BitOr, BitOrAssign, Sub},
};

use crate::{reactor, reactor::Directions};

/// The readiness to wait for: readable, writable, priority data, errors, or whichever comes first.
///
/// Priority data (`EPOLLPRI`) also counts as readable. An error also counts as both.
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
    /// There is priority data (`EPOLLPRI`), such as urgent data of TCP or a changed value in sysfs,
    /// or the end of the stream.
    pub const PRIORITY: Self = Self(Directions::PRIORITY);
    /// There is an error (`EPOLLERR`), such as an entry in the error queue of a socket.
    pub const ERROR: Self = Self(Directions::ERROR);

    /// Returns whether this includes readable.
    pub const fn is_readable(self) -> bool {
        self.0.includes(Directions::READ)
    }

    /// Returns whether this includes writable.
    pub const fn is_writable(self) -> bool {
        self.0.includes(Directions::WRITE)
    }

    /// Returns whether this includes priority data.
    pub const fn is_priority(self) -> bool {
        self.0.includes(Directions::PRIORITY)
    }

    /// Returns whether this includes errors.
    pub const fn is_error(self) -> bool {
        self.0.includes(Directions::ERROR)
    }

    /// Returns the union of both, as `|` does.
    #[must_use = "answers another interest"]
    pub const fn add(self, other: Self) -> Self {
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
        let names = [
            (Self::READABLE, "READABLE"),
            (Self::WRITABLE, "WRITABLE"),
            (Self::PRIORITY, "PRIORITY"),
            (Self::ERROR, "ERROR"),
        ];
        let mut separator = "";
        for (interest, name) in names {
            if self.0.includes(interest.0) {
                write!(f, "{separator}{name}")?;
                separator = " | ";
            }
        }
        Ok(())
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
    /// There is priority data.
    pub const PRIORITY: Self = Self(16);
    /// There is an error.
    pub const ERROR: Self = Self(32);
    /// All flags.
    pub const ALL: Self = Self(63);

    /// What can be waited for, its flag, and the flag of its end.
    const KINDS: [(Directions, Self, Self); 4] = [
        (Directions::READ, Self::READABLE, Self::READ_CLOSED),
        (Directions::WRITE, Self::WRITABLE, Self::WRITE_CLOSED),
        (Directions::PRIORITY, Self::PRIORITY, Self::READ_CLOSED),
        (Directions::ERROR, Self::ERROR, Self::EMPTY),
    ];

    /// Converts the part of `ready` that `interest` includes.
    pub(crate) fn of(ready: reactor::Ready, interest: Interest) -> Self {
        let mut found = Self::EMPTY;
        for (kind, open, closed) in Self::KINDS {
            if interest.0.includes(kind) {
                if ready.is_open(kind) {
                    found |= open;
                }
                if ready.is_closed(kind) {
                    found |= closed;
                }
            }
        }
        found
    }

    /// Returns what the flags stand for, without the ends of streams.
    pub(super) fn directions(self) -> Option<Directions> {
        let set = Self::KINDS
            .into_iter()
            .filter(|(_, open, _)| !(self & *open).is_empty());
        set.map(|(kind, ..)| kind).reduce(Directions::and)
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

    /// Returns whether there is priority data.
    pub fn is_priority(self) -> bool {
        !(self & Self::PRIORITY).is_empty()
    }

    /// Returns whether there is an error.
    pub fn is_error(self) -> bool {
        !(self & Self::ERROR).is_empty()
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
            .field("is_priority", &self.is_priority())
            .field("is_error", &self.is_error())
            .finish()
    }
}
