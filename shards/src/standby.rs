//! Who sits and waits, so that somebody comes when a worker is stuck.
//!
//! A worker that is parked can come to the aid of others (see `watch.rs`). When all workers are busy,
//! that takes a *helper*: a thread that is no worker, sits until it is called, and ends when it was not
//! needed for long. Somebody is always to sit, if the number of helpers allows for it:
//!
//! 1. *Who gets up to run foreign code*, worker or helper, takes itself off the count first, and then,
//!    if nobody sits, puts a new helper on it ([`stand_by`](Searchers::stand_by)), and starts its thread.
//! 2. *A helper ends* only by a compare-exchange that leaves somebody who sits
//!    ([`retire`](Searchers::retire)).
//!
//! All of it is in one word, with the count of those that are parked. So of two that get up at once the
//! second sees that nobody is left; and a helper that retires comes before the last worker gets up,
//! which then sees that it has gone, or after it, and stays.
//!
//! Helpers do not search until they are called, and nobody wakes them for work: while the workers are
//! well, one thread more would only be in their way.

use crate::{
    search::{HELPING, SITTING, Searchers, helping, parked, sitting},
    sync::{Ordering, fence},
};

impl Searchers {
    /// Puts a helper on the list of those that sit, if nobody does, and there are fewer than `most`; true
    /// if the caller has to start it. For a thread that got up, and is about to run foreign code.
    #[must_use]
    pub fn stand_by(&self, most: usize) -> bool {
        self.change(|word| {
            let nobody = parked(word) + sitting(word) == 0;
            (nobody && helping(word) < most as u64).then_some(word + SITTING + HELPING)
        })
    }

    /// Puts a helper on the list, whoever sits there; the caller starts it.
    pub fn enlist(&self) {
        self.word.fetch_add(SITTING + HELPING, Ordering::AcqRel);
    }

    /// The helper that was put on the list could not be started.
    pub fn strike(&self) {
        self.word.fetch_sub(SITTING + HELPING, Ordering::AcqRel);
    }

    /// A helper sits down again.
    pub fn sit(&self) {
        self.word.fetch_add(SITTING, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// A helper gets up, before it takes anything into its hands.
    pub fn rise(&self) {
        self.word.fetch_sub(SITTING, Ordering::AcqRel);
    }

    /// A helper that sits ends, if somebody else sits then, and `least` helpers remain. True if it does.
    #[must_use]
    pub fn retire(&self, least: usize) -> bool {
        self.change(|word| {
            let others = parked(word) + sitting(word) > 1;
            (others && helping(word) > least as u64).then(|| word - SITTING - HELPING)
        })
    }

    /// How many helpers there are.
    pub fn helpers(&self) -> usize {
        helping(self.word.load(Ordering::Relaxed)) as usize
    }

    /// Whether no helper is up: all that they have done is seen then by what is looked at after this.
    ///
    /// One look at both counts. Between two, one that ends would be taken for one that is up; and for one
    /// that is up another may be put on the list, which sits.
    pub fn all_sit(&self) -> bool {
        fence(Ordering::SeqCst);
        let word = self.word.load(Ordering::Acquire);
        sitting(word) == helping(word)
    }

    /// How many of them sit. What those that have sat down have done is seen by what is looked at after
    /// this.
    pub fn sitting(&self) -> usize {
        fence(Ordering::SeqCst);
        sitting(self.word.load(Ordering::Acquire)) as usize
    }

    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while let Some(to) = next(word) {
            match self
                .word
                .compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}
