//! The parked word: until when a worker sleeps, and who may wake it.
//!
//! ```text
//! worker                                   any thread
//!   word.swap(until)                         push; lower the published deadline
//!   fence(SeqCst)                            fence(SeqCst)
//!   anything there? then undo                word > deadline, and CAS(word → TICKLED) won?
//!   sleep                                    then wake it
//!   word.swap(AWAKE)
//! ```
//!
//! It is Dekker's: of the two fences one comes first, so either the worker sees what was pushed or
//! the pusher sees that the worker sleeps. The compare-exchange lets one of a burst of pushers do
//! the waking; those with later deadlines than the sleeper's do none.
//!
//! The word is only ever written by read-modify-writes, and the fences are explicit.

use crate::sync::{AtomicU64, Ordering, fence};

/// The worker runs.
const AWAKE: u64 = 0;
/// The worker has been woken, and has not run yet.
const TICKLED: u64 = 1;
/// The worker has been woken to search for work, has not run yet, and is counted as a searcher
/// already.
const SEARCH: u64 = 2;

/// The parked word of one worker.
#[derive(Debug)]
pub struct Parker(AtomicU64);

impl Parker {
    /// The word of a worker that runs.
    #[allow(
        clippy::new_without_default,
        reason = "a parker belongs to a worker; none is made by default"
    )]
    pub fn new() -> Self {
        Self(AtomicU64::new(AWAKE))
    }

    /// Announces that the worker sleeps until `until`, in ns ([`NEVER`](crate::NEVER): until it is
    /// woken). The worker looks once more for what it has to do after this, and before it sleeps.
    pub fn announce(&self, until: u64) {
        self.0.swap(until.max(SEARCH + 1), Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake again; true if it was woken to search.
    #[must_use]
    pub fn resume(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == SEARCH
    }

    /// Whether the worker sleeps past `deadline` and the caller is the one who has to wake it. To
    /// be asked after a `fence(SeqCst)` behind what it is woken for.
    #[must_use]
    #[inline]
    pub fn claim_if_later(&self, deadline: u64) -> bool {
        let later = deadline.max(SEARCH);
        self.claim(|word| (word > later).then_some(TICKLED))
            .is_some()
    }

    /// Makes the worker, if it sleeps or has been woken and not run yet, one that searches when it
    /// runs. The caller has counted it as a searcher before.
    #[must_use]
    pub fn claim_for_search(&self) -> SearchClaim {
        let next = |word| (word == TICKLED || word > SEARCH).then_some(SEARCH);
        match self.claim(next) {
            None => SearchClaim::Refused,
            Some(TICKLED) => SearchClaim::Waking,
            Some(_) => SearchClaim::Asleep,
        }
    }

    /// Whether the worker runs: it neither sleeps nor has yet to run after it was woken. A hint.
    #[inline]
    pub fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAKE
    }

    /// Until when the worker sleeps, in ns, or `None` while it is awake. A hint.
    pub fn parked_until(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&word| word > SEARCH)
    }

    /// Changes the word as `next` says; answers what it was.
    #[inline]
    fn claim(&self, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let to = next(word)?;
            match self
                .0
                .compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
        }
    }
}

/// What [`Parker::claim_for_search`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchClaim {
    /// The worker is awake, or searches already.
    Refused,
    /// The worker will search; somebody else is waking it.
    Waking,
    /// The worker will search; the caller has to wake it.
    Asleep,
}
