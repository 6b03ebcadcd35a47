//! How long a timer waits, and since when.
//!
//! A wait has a *start* and a *length*, the timer's delay or period, and they lead to the deadline.
//! So as a rule the start is *implied*: it is the deadline less the length, and the length is all
//! that a node has room for. A move to a moment changes the deadline alone, and then the start has
//! to be kept. Few timers are ever moved so. For these the start and the length stand in an
//! allocation of their own, which they have until they are freed, and whatever moves them writes
//! the start there before it changes the deadline.

use std::ptr::without_provenance_mut;

use crate::{
    claim::NEVER,
    sync::{AtomicPtr, AtomicU64, Ordering},
};

/// In the word: it is the address of an [`Apart`], and no length. Lengths end below.
const APART: usize = 1 << 63;

/// The start and the length of a timer whose start is kept.
struct Apart {
    start: AtomicU64,
    length: AtomicU64,
}

/// The wait of a callback's node.
///
/// Any thread may change it. Of two that do so at the same moment the one may leave the start and
/// the other the length. The thread that runs a recurring timer is one of them: when a run ends, it
/// writes where the next wait begins.
pub(crate) struct Wait(AtomicPtr<Apart>);

/// The word for a length.
fn plain(length: u64) -> *mut Apart {
    without_provenance_mut(length.min(NEVER) as usize)
}

impl Wait {
    /// A wait of so many ns, [`NEVER`] at most, whose start is implied.
    #[inline]
    pub(crate) fn new(length: u64) -> Self {
        Self(AtomicPtr::new(plain(length)))
    }

    /// Its length, if that stands here, as it does as a rule.
    #[inline]
    pub(crate) fn quick(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Relaxed).addr();
        (word & APART == 0).then_some(word as u64)
    }

    /// Its length, in ns.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        match self.quick() {
            Some(length) => length,
            None => match self.apart() {
                Ok(apart) => apart.length.load(Ordering::Relaxed),
                Err(length) => length,
            },
        }
    }

    /// What stands apart; or else the length.
    #[cold]
    fn apart(&self) -> Result<&Apart, u64> {
        let word = self.0.load(Ordering::Acquire);
        if word.addr() & APART == 0 {
            return Err(word.addr() as u64);
        }
        let apart = word.map_addr(|addr| addr & !APART);
        // SAFETY: the mark says that it is the address of what `keep` made and released; it is
        // freed with this.
        Ok(unsafe { &*apart })
    }

    /// Changes the length; answers the one that it had.
    pub(crate) fn set(&self, length: u64) -> u64 {
        let mut word = self.0.load(Ordering::Relaxed);
        while word.addr() & APART == 0 {
            let changed = self.0.compare_exchange_weak(
                word,
                plain(length),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match changed {
                Ok(_) => return word.addr() as u64,
                Err(now) => word = now,
            }
        }
        match self.apart() {
            Ok(apart) => apart.length.swap(length.min(NEVER), Ordering::Relaxed),
            Err(length) => length,
        }
    }

    /// Whether the start is kept.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed).addr() & APART != 0
    }

    /// The start, if it is kept.
    #[cfg(test)]
    fn start(&self) -> Option<u64> {
        let apart = self.apart().ok()?;
        Some(apart.start.load(Ordering::Relaxed))
    }

    /// The start is this, whatever the deadline will be.
    #[cold]
    pub(crate) fn keep(&self, start: u64) {
        if self.keep_if_implied(start) != start {
            if let Ok(apart) = self.apart() {
                apart.start.store(start, Ordering::Relaxed);
            }
        }
    }

    /// The start is this, unless it is kept already. Answers what it is.
    #[cold]
    pub(crate) fn keep_if_implied(&self, start: u64) -> u64 {
        let mut made: Option<Box<Apart>> = None;
        loop {
            let length = match self.apart() {
                Ok(apart) => return apart.start.load(Ordering::Relaxed),
                Err(length) => length,
            };
            let apart = Box::into_raw(made.take().unwrap_or_else(|| {
                let (start, length) = (AtomicU64::new(start), AtomicU64::new(0));
                Box::new(Apart { start, length })
            }));
            // SAFETY: it is live, and this thread's alone until the exchange.
            unsafe { &*apart }.length.store(length, Ordering::Relaxed);
            // A length that was changed meanwhile is read again.
            let exchanged = self.0.compare_exchange(
                plain(length),
                apart.map_addr(|addr| addr | APART),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if exchanged.is_ok() {
                return start;
            }
            // SAFETY: nobody else has seen it.
            made = Some(unsafe { Box::from_raw(apart) });
        }
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.load(Ordering::Acquire);
        if word.addr() & APART != 0 {
            let apart = word.map_addr(|addr| addr & !APART);
            // SAFETY: `keep` made it, and nobody has this any more.
            drop(unsafe { Box::from_raw(apart) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_is_kept_changes_no_length() {
        let wait = Wait::new(7);
        assert_eq!((wait.quick(), wait.start()), (Some(7), None));
        assert_eq!((wait.set(8), wait.length()), (7, 8));
        wait.keep(3);
        assert_eq!(
            (wait.quick(), wait.length(), wait.start()),
            (None, 8, Some(3))
        );
        assert_eq!((wait.set(9), wait.length()), (8, 9));
        wait.keep(NEVER);
        assert_eq!((wait.length(), wait.start()), (9, Some(NEVER)));
    }

    #[test]
    fn a_length_is_never_at_most() {
        let wait = Wait::new(u64::MAX);
        assert_eq!(wait.quick(), Some(NEVER));
        wait.keep(0);
        assert_eq!(wait.set(u64::MAX), NEVER);
        assert_eq!(wait.length(), NEVER);
    }

    #[test]
    fn threads_that_keep_starts_at_once_lose_no_length() {
        for _ in 0..100 {
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
