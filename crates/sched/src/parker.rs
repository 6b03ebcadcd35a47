//! The parked word: until when a worker sleeps, and which thread wakes it.
//!
//! ```text
//! worker                                   any thread
//!   word.swap(until)                         push; lower the published deadline
//!   fence(SeqCst)                            fence(SeqCst)
//!   anything there? then undo                word > deadline, and CAS(word → NOTIFIED) won?
//!   sleep                                    then wake it
//!   word.swap(AWAKE)
//! ```
//!
//! This is Dekker's pattern: one of the two fences comes first, so either the worker sees what was
//! pushed, or the pusher sees that the worker sleeps. Of a burst of pushers, the compare-exchange
//! lets one wake the worker. A pusher with a deadline after the end of the sleep wakes no worker.
//! See "Parking and wake-ups" in `PROTOCOLS.md`.
//!
//! The word is written by read-modify-writes only, and the fences are explicit.

use tourbillon_sync::{AtomicU64, Ordering, fence};

/// The worker is awake.
const AWAKE: u64 = 0;
/// The worker was notified of an update or a deadline, and has not run since.
const NOTIFIED: u64 = 1;
/// The worker was notified to search for work, and has not run since. It counts as a searcher
/// already.
const SEARCH: u64 = 2;

/// The parked word of one worker.
#[derive(Debug)]
pub struct Parker(AtomicU64);

impl Parker {
    /// Creates the word of a worker that is awake.
    #[allow(
        clippy::new_without_default,
        reason = "a parker belongs to a worker; none is made by default"
    )]
    pub fn new() -> Self {
        Self(AtomicU64::new(AWAKE))
    }

    /// Announces that the worker sleeps until `until`, in ns ([`NEVER`](crate::NEVER): until it is
    /// woken). After this and before the sleep, the worker looks once more for updates and work.
    #[inline]
    pub fn announce(&self, until: u64) {
        self.0.swap(until.max(SEARCH + 1), Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Announces that the worker is awake again. Returns whether it was woken to search.
    #[must_use]
    #[inline]
    pub fn resume(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == SEARCH
    }

    /// Claims the wake-up of a worker that sleeps past `deadline`. If this returns `true`, the
    /// caller wakes the worker. The caller has a `fence(SeqCst)` between the push of the node and
    /// this call.
    #[must_use]
    #[inline]
    pub fn claim_if_later(&self, deadline: u64) -> bool {
        self.claim_if_not_deferred(deadline, || 0)
    }

    /// Does as [`claim_if_later`](Parker::claim_if_later), but not for a sleep that ends by
    /// `deferred`. The worker writes that moment while it is awake, and before it announces a sleep.
    ///
    /// The moment may belong to another sleep than the word that this call has seen. Of the worker's
    /// fence after the announcement and the caller's fence, one comes first. If it is the worker's,
    /// the caller sees what the worker wrote for this sleep, or later. Otherwise, or if the moment is
    /// a later one, the worker looks for updates after the push.
    #[must_use]
    #[inline]
    pub fn claim_if_not_deferred(&self, deadline: u64, deferred: impl Fn() -> u64) -> bool {
        let later = deadline.max(SEARCH);
        self.claim(|word| (word > later && word > deferred()).then_some(NOTIFIED))
            .is_some()
    }

    /// Makes the worker search when it runs next, if it sleeps, or was notified and has not run
    /// since. The caller has counted it as a searcher before.
    #[must_use]
    #[inline]
    pub fn claim_for_search(&self) -> SearchClaim {
        let next = |word| (word == NOTIFIED || word > SEARCH).then_some(SEARCH);
        match self.claim(next) {
            None => SearchClaim::Refused,
            Some(NOTIFIED) => SearchClaim::Waking,
            Some(_) => SearchClaim::Asleep,
        }
    }

    /// Returns whether the worker is awake: it neither sleeps nor is being woken. A hint.
    #[inline]
    pub fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAKE
    }

    /// Returns whether the calling thread has to wake the worker again, because it has taken an event
    /// from the operating system that would have ended the worker's sleep.
    ///
    /// A worker that is awake need not be woken: before its next sleep it will look at all that the
    /// event was for.
    #[must_use]
    pub fn misses_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.is_awake()
    }

    /// Returns until when the worker sleeps, in ns, or `None` while it is awake. A hint.
    #[inline]
    pub fn parked_until(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&word| word > SEARCH)
    }

    /// Changes the word to `next` of it, and returns the old word. Returns `None` if `next` does.
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

/// The result of [`Parker::claim_for_search`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchClaim {
    /// The worker is awake, or will search already.
    Refused,
    /// The worker will search. Another thread is waking it.
    Waking,
    /// The worker will search. The caller has to wake it.
    Asleep,
}
