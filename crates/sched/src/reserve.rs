//! The reserve: threads that wait to rescue a worker that is stuck.
//!
//! A parked worker can rescue others (see `alarm.rs`). When all workers are busy, that takes a
//! *helper*. A helper is a thread that is no worker. It waits *in reserve* until it is called, and
//! ends if it was not needed for long. Two rules keep a thread in reserve, if the number of helpers
//! allows for it:
//!
//! 1. *A thread that leaves the reserve, or unparks, to run user code* first takes itself off the
//!    count. Then, if no thread is parked or in reserve, it counts a new helper in
//!    ([`ensure_reserve`](Searchers::ensure_reserve)), and starts its thread.
//! 2. *A helper ends* only by a compare-exchange that leaves another thread parked or in reserve
//!    ([`retire`](Searchers::retire)).
//!
//! All these counts are in one word with the parked workers. So if two threads leave the count at
//! once, the second sees that no thread is left. A helper may retire while the last worker unparks.
//! If it retires before that, the worker sees that it is gone; otherwise the helper stays. See
//! "Helpers" in `PROTOCOLS.md`.
//!
//! Helpers do not search until they are called, and no thread wakes them for work. While no worker
//! is stuck, one more thread would only compete with the workers.

use tourbillon_sync::{Ordering, fence};

use crate::searchers::{HELPING, RESERVE, Searchers, helping, parked, reserve};

impl Searchers {
    /// Counts a new helper in reserve, if no thread is parked or in reserve, and fewer than `most`
    /// helpers exist. If this returns `true`, the caller starts the helper. A thread calls this
    /// after it has left the count, when it is about to run user code.
    #[must_use]
    #[inline]
    pub fn ensure_reserve(&self, most: usize) -> bool {
        self.change(|word| {
            let is_empty = parked(word) + reserve(word) == 0;
            (is_empty && helping(word) < most as u64).then_some(word + RESERVE + HELPING)
        })
    }

    /// Counts a new helper in reserve, without a condition. The caller starts the helper.
    pub fn enlist(&self) {
        self.word.fetch_add(RESERVE + HELPING, Ordering::AcqRel);
    }

    /// Takes a helper off the counts that could not be started.
    pub fn strike(&self) {
        self.word.fetch_sub(RESERVE + HELPING, Ordering::AcqRel);
    }

    /// Counts the calling helper in reserve again.
    #[inline]
    pub fn enter_reserve(&self) {
        self.word.fetch_add(RESERVE, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes the calling helper off the reserve. It calls this before it takes a job or a timer.
    ///
    /// If it reads after this that no clock is paused, a thread that pauses the clock later sees
    /// that the helper is up.
    #[inline]
    pub fn leave_reserve(&self) {
        self.word.fetch_sub(RESERVE, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes the calling helper, which is in reserve, off the counts, if another thread is parked
    /// or in reserve and `least` helpers remain. If this returns `true`, the helper ends.
    #[must_use]
    pub fn retire(&self, least: usize) -> bool {
        self.change(|word| {
            let others = parked(word) + reserve(word) > 1;
            (others && helping(word) > least as u64).then(|| word - RESERVE - HELPING)
        })
    }

    /// Returns the number of helpers.
    #[inline]
    pub fn helpers(&self) -> usize {
        helping(self.word.load(Ordering::Relaxed)) as usize
    }

    /// Returns whether all helpers are in reserve. If so, what the caller reads after this includes
    /// all that they have done.
    ///
    /// Both counts are read at once. Between two reads a helper could end, and would then look as
    /// if it were up; or a helper could be up while a new one joins the reserve.
    #[inline]
    pub fn all_in_reserve(&self) -> bool {
        fence(Ordering::SeqCst);
        let word = self.word.load(Ordering::Acquire);
        reserve(word) == helping(word)
    }

    /// Returns the number of helpers in reserve. What the caller reads after this includes all that
    /// these helpers have done.
    pub fn in_reserve(&self) -> usize {
        fence(Ordering::SeqCst);
        reserve(self.word.load(Ordering::Acquire)) as usize
    }

    /// Changes the word to `next` of it. Returns `false` if `next` returns `None`.
    #[inline]
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
