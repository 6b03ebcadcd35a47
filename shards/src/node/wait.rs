//! The wait of a timer: its start and its length, which is the timer's delay or period.
//!
//! The deadline follows from both. So the start is usually *implied*: it is the deadline less the
//! length, and a node has room for the length only. A move that changes the length changes the
//! deadline, too, which is not one step. So it *keeps* the start first, or another thread could
//! take the new length with the old deadline. Few timers are ever moved in this way. Their start
//! and length are in an allocation of their own, which lives as long as the node. Each later move
//! writes the start there before it changes the deadline. See "Idle timers" in `PROTOCOLS.md`.

use std::ptr::without_provenance_mut;

use tourbillon_sync::{AtomicPtr, AtomicU64, Ordering};

use crate::node::claim::NEVER;

/// Marks a word that is the address of a [`KeptWait`]. No length has this bit.
const KEPT: usize = 1 << 63;

/// The start and the length of a wait whose start is kept, in ns.
struct KeptWait {
    /// An `i64`: a wait may begin before the zero of the clock.
    start: AtomicU64,
    length: AtomicU64,
}

/// The wait of a callback's node.
///
/// Any thread may change it. If two threads change it at the same moment, one of them may leave its
/// start, and the other its length. The thread that runs a recurring timer also changes it: when a
/// run ends, it writes where the next wait starts.
pub(crate) struct Wait(AtomicPtr<KeptWait>);

/// Returns the start of a wait of `length` that ends at `deadline`. Neither is beyond [`NEVER`].
#[inline]
pub(crate) fn start_of(deadline: u64, length: u64) -> i64 {
    deadline.wrapping_sub(length) as i64
}

/// Returns the word for a length.
fn plain(length: u64) -> *mut KeptWait {
    without_provenance_mut(length.min(NEVER) as usize)
}

impl Wait {
    /// Creates a wait of `length` ns, at most [`NEVER`], whose start is implied.
    #[inline]
    pub(crate) fn new(length: u64) -> Self {
        Self(AtomicPtr::new(plain(length)))
    }

    /// Returns the length if the word has it, which is the usual case.
    #[inline]
    pub(crate) fn inline_length(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Relaxed).addr();
        (word & KEPT == 0).then_some(word as u64)
    }

    /// Returns the length, in ns.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.inline_length().unwrap_or_else(|| match self.kept() {
            Ok(kept) => kept.length.load(Ordering::Relaxed),
            Err(length) => length,
        })
    }

    /// Returns the kept start and length, or the length if the start is implied.
    #[cold]
    fn kept(&self) -> Result<&KeptWait, u64> {
        let word = self.0.load(Ordering::Acquire);
        if word.addr() & KEPT == 0 {
            return Err(word.addr() as u64);
        }
        let kept = word.map_addr(|addr| addr & !KEPT);
        // SAFETY: the mark says that this is the address of an allocation that `keep_if_implied`
        // has released to this word. Only the drop of `self` frees it.
        Ok(unsafe { &*kept })
    }

    /// Changes the length, and returns the old one.
    pub(crate) fn set(&self, length: u64) -> u64 {
        // As long as the start is implied, the length is in the word. Another thread may keep the
        // start meanwhile, so the word is exchanged.
        let change = |word: *mut KeptWait| (word.addr() & KEPT == 0).then(|| plain(length));
        match (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, change) {
            Ok(word) => word.addr() as u64,
            Err(_) => match self.kept() {
                Ok(kept) => kept.length.swap(length.min(NEVER), Ordering::Relaxed),
                Err(length) => length,
            },
        }
    }

    /// Returns whether the start is kept.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed).addr() & KEPT != 0
    }

    /// Returns the start, if it is kept.
    #[cfg(test)]
    fn start(&self) -> Option<i64> {
        let kept = self.kept().ok()?;
        Some(kept.start.load(Ordering::Relaxed) as i64)
    }

    /// Makes `start` the kept start. The length and the deadline may then change one after the
    /// other. Returns `start`.
    #[cold]
    pub(crate) fn keep(&self, start: i64) -> i64 {
        self.keep_if_implied(start);
        if let Ok(kept) = self.kept() {
            kept.start.store(start as u64, Ordering::Relaxed);
        }
        start
    }

    /// Makes `start` the kept start, unless one is kept already. Returns the kept start.
    #[cold]
    pub(crate) fn keep_if_implied(&self, start: i64) -> i64 {
        let mut made: Option<Box<KeptWait>> = None;
        loop {
            let length = match self.kept() {
                Ok(kept) => return kept.start.load(Ordering::Relaxed) as i64,
                Err(length) => length,
            };
            let kept = Box::into_raw(made.take().unwrap_or_else(|| {
                let (start, length) = (AtomicU64::new(start as u64), AtomicU64::new(0));
                Box::new(KeptWait { start, length })
            }));
            // SAFETY: the allocation is live, and no other thread knows it before the exchange.
            unsafe { &*kept }.length.store(length, Ordering::Relaxed);
            // The exchange fails if another thread has changed the length meanwhile. Then it is
            // read again.
            let exchanged = self.0.compare_exchange(
                plain(length),
                kept.map_addr(|addr| addr | KEPT),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if exchanged.is_ok() {
                return start;
            }
            // SAFETY: the exchange failed, so no other thread has seen the allocation.
            made = Some(unsafe { Box::from_raw(kept) });
        }
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.load(Ordering::Acquire);
        if word.addr() & KEPT != 0 {
            let kept = word.map_addr(|addr| addr & !KEPT);
            // SAFETY: `keep_if_implied` has allocated it, and no other thread refers to this wait
            // any more.
            drop(unsafe { Box::from_raw(kept) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keeping_a_start_does_not_change_the_length() {
        let wait = Wait::new(7);
        assert_eq!((wait.inline_length(), wait.start()), (Some(7), None));
        assert_eq!((wait.set(8), wait.length()), (7, 8));
        wait.keep(3);
        assert_eq!(
            (wait.inline_length(), wait.length(), wait.start()),
            (None, 8, Some(3))
        );
        assert_eq!((wait.set(9), wait.length()), (8, 9));
        wait.keep(-7);
        assert_eq!((wait.length(), wait.start()), (9, Some(-7)));
    }

    #[test]
    fn a_length_is_at_most_never() {
        let wait = Wait::new(u64::MAX);
        assert_eq!(wait.inline_length(), Some(NEVER));
        wait.keep(0);
        assert_eq!(wait.set(u64::MAX), NEVER);
        assert_eq!(wait.length(), NEVER);
    }

    #[test]
    fn concurrent_keeps_do_not_lose_the_length() {
        for _ in 0..if cfg!(miri) { 5 } else { 100 } {
            let wait = &Wait::new(5);
            std::thread::scope(|scope| {
                for start in 0..4 {
                    scope.spawn(move || {
                        wait.keep(start);
                        assert_eq!(wait.length(), 5);
                    });
                }
            });
            assert!(wait.start().is_some_and(|start| start < 4));
        }
    }
}
