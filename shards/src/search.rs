//! Who searches for work, and who is woken to.
//!
//! Work that anybody may do (a spawned task, a due timer) wakes one parked worker, and only if
//! nobody searches already: a searcher will find it. Three rules keep that from losing work:
//!
//! 1. *The last searcher that finds work wakes the next*, since who brought more meanwhile relied
//!    on it.
//! 2. *A searcher that gives up* takes itself off the count, fences, and looks everywhere once more.
//! 3. *Who claimed to wake a searcher and found nobody asleep* does as rule 2 says: for a moment it
//!    was counted as one.
//!
//! Against a worker that is just going to sleep, the parked count does what the parked word does for
//! deadlines (see `park.rs`): it is raised before the worker looks a last time, and read after the
//! work was pushed, with a fence on both sides.

use crate::sync::{AtomicU64, Ordering, fence};

const SEARCHING: u64 = 1;
const PARKED: u64 = 1 << 16;
pub(crate) const SITTING: u64 = 1 << 32;
pub(crate) const HELPING: u64 = 1 << 48;

fn searching(word: u64) -> u64 {
    word % PARKED
}

pub(crate) fn parked(word: u64) -> u64 {
    word % SITTING / PARKED
}

pub(crate) fn sitting(word: u64) -> u64 {
    word % HELPING / SITTING
}

pub(crate) fn helping(word: u64) -> u64 {
    word / HELPING
}

/// How many workers of a runtime search for work, how many are parked, and how many helpers there are
/// and sit (see `standby.rs`): one word for all, so at most 65,535 of each.
///
/// ```text
///  63        48 47        32 31        16 15         0
/// ┌────────────┬────────────┬────────────┬────────────┐
/// │ helpers    │ that sit   │ parked     │ searching  │
/// └────────────┴────────────┴────────────┴────────────┘
/// ```
#[derive(Debug)]
pub struct Searchers {
    pub(crate) word: AtomicU64,
    limit: u64,
}

impl Searchers {
    /// For this many workers, at most half of which search at a time (but one, if there is one).
    pub fn new(workers: usize) -> Self {
        Self {
            word: AtomicU64::new(0),
            limit: (workers as u64 / 2).max(1),
        }
    }

    /// Counts the calling worker as a searcher, unless enough others are.
    #[must_use]
    pub fn begin(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while searching(word) < self.limit {
            match self.word.compare_exchange_weak(
                word,
                word + SEARCHING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// The calling searcher found work; true if it was the last, and has to
    /// [wake](Searchers::wake_one) the next.
    #[must_use]
    pub fn found(&self) -> bool {
        searching(self.word.fetch_sub(SEARCHING, Ordering::AcqRel)) == 1
    }

    /// Counts the calling worker as parked, and no more as a searcher if it was one. It looks
    /// everywhere once more before it sleeps.
    pub fn park(&self, was_searching: bool) {
        let change = if was_searching {
            PARKED - SEARCHING
        } else {
            PARKED
        };
        self.word.fetch_add(change, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Counts the calling worker as awake again. One that was woken to search is a searcher already.
    pub fn unpark(&self) {
        self.word.fetch_sub(PARKED, Ordering::AcqRel);
    }

    /// After work was pushed: wakes one parked worker to search for it, if there is one and nobody
    /// searches.
    ///
    /// `wake` tries the workers in an order of its own, by [`Parker::claim_for_search`], until one is
    /// not refused, and wakes that if it sleeps; `work` says whether there is still anything to find.
    ///
    /// [`Parker::claim_for_search`]: crate::Parker::claim_for_search
    #[inline]
    pub fn wake_one(&self, wake: impl FnMut() -> bool, work: impl FnMut() -> bool) -> bool {
        fence(Ordering::SeqCst);
        let word = self.word.load(Ordering::Relaxed);
        if parked(word) == 0 || searching(word) != 0 {
            return false;
        }
        self.wake_slow(word, wake, work)
    }

    #[cold]
    fn wake_slow(
        &self,
        mut word: u64,
        mut wake: impl FnMut() -> bool,
        mut work: impl FnMut() -> bool,
    ) -> bool {
        loop {
            while let Err(now) = self.word.compare_exchange_weak(
                word,
                word + SEARCHING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                word = now;
                if parked(word) == 0 || searching(word) != 0 {
                    return false;
                }
            }
            if wake() {
                return true;
            }
            word = self.word.fetch_sub(SEARCHING, Ordering::AcqRel) - SEARCHING;
            fence(Ordering::SeqCst);
            if parked(word) == 0 || searching(word) != 0 || !work() {
                return false;
            }
        }
    }

    /// How many workers search. A hint.
    pub fn searching(&self) -> usize {
        searching(self.word.load(Ordering::Relaxed)) as usize
    }

    /// How many workers are parked. A hint.
    pub fn parked(&self) -> usize {
        parked(self.word.load(Ordering::Relaxed)) as usize
    }
}
