//! The parked word: until when a worker sleeps, and who may wake it.
//!
//! ```text
//! worker                                   any thread
//!   word.swap(until)                         push; lower the published deadline
//!   fence(SeqCst)                            fence(SeqCst)
//!   anything there? then undo                word > deadline, and CAS(word → AWAKE) won?
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

/// The worker runs, or has been tickled.
const AWAKE: u64 = 0;
/// The worker has been woken to search for work, and is counted as a searcher already.
const SEARCH: u64 = 1;

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
    pub fn claim_if_later(&self, deadline: u64) -> bool {
        self.claim(deadline.max(SEARCH), AWAKE)
    }

    /// Whether the worker sleeps and the caller is the one who has to wake it, to search.
    #[must_use]
    pub fn claim_for_search(&self) -> bool {
        self.claim(SEARCH, SEARCH)
    }

    /// Until when the worker sleeps, in ns, or `None` while it is awake. A hint.
    pub fn parked_until(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&word| word > SEARCH)
    }

    fn claim(&self, later_than: u64, to: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word > later_than {
            match self
                .0
                .compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}
