//! The numbers of runtimes and local sets.

use std::{fmt, num::NonZeroU64};

use crate::sys::sync::atomic::{AtomicU64, Ordering};

/// The next number. It starts at 1, so zero is never a number.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number of a runtime or of a local set. No other one of the process has it, before or after.
///
/// [`Handle::id`](crate::Handle::id) and
/// [`LocalSet::id`](crate::task::local::set::LocalSet::id) return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// Returns a new number.
    pub(crate) fn fresh() -> Self {
        // Relaxed is enough: the number is unique, and publishes nothing else.
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(next).expect("64 bits are enough for centuries"))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
