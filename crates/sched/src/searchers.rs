//! The count of the workers that search for work, and of those that are parked.
//!
//! Work that any worker may do (a spawned task, a due timer) wakes one parked worker, and only if
//! no worker searches: a searcher will find it. Three rules keep that from losing work:
//!
//! 1. *The last searcher that finds work wakes the next worker if there is more*: a thread that
//!    brought more work meanwhile relied on the searcher.
//! 2. *A searcher that gives up* leaves the count, fences, and looks everywhere once more.
//! 3. *A thread that counted a searcher in and found no worker asleep* follows rule 2: for a moment
//!    others took it for a searcher.
//!
//! A worker that is about to sleep raises the parked count before it looks a last time. A pusher
//! reads the count after its push. There is a fence on both sides, as with the parked word (see
//! `parker.rs`). See "Searchers" in `PROTOCOLS.md` for the proof.

use tourbillon_sync::{AtomicU64, Ordering, fence};

// One of each count: see the picture at `Searchers`.
const SEARCHING: u64 = 1;
const PARKED: u64 = 1 << 16;
pub(crate) const RESERVE: u64 = 1 << 32;
pub(crate) const HELPING: u64 = 1 << 48;

#[inline]
fn searching(word: u64) -> u64 {
    word % PARKED
}

#[inline]
pub(crate) fn parked(word: u64) -> u64 {
    word % RESERVE / PARKED
}

#[inline]
pub(crate) fn reserve(word: u64) -> u64 {
    word % HELPING / RESERVE
}

#[inline]
pub(crate) fn helping(word: u64) -> u64 {
    word / HELPING
}

/// Counts the workers of a runtime that search for work and that are parked, and the helpers, with
/// those in reserve (see `reserve.rs`). All counts are in one word, so each is at most 65,535.
///
/// ```text
///  63        48 47        32 31        16 15         0
/// ┌────────────┬────────────┬────────────┬────────────┐
/// │ helpers    │ in reserve │ parked     │ searching  │
/// └────────────┴────────────┴────────────┴────────────┘
/// ```
#[derive(Debug)]
pub struct Searchers {
    pub(crate) word: AtomicU64,
    limit: u64,
}

/// A worker that sleeps by [`Searchers::sleep`]. It has a [`Parker`](crate::Parker), and knows
/// until when it may sleep.
pub trait Sleeper {
    /// Announces by [`Parker::announce`](crate::Parker::announce) that the worker sleeps until its
    /// next deadline, and returns that deadline, in ns ([`NEVER`](crate::NEVER): there is none).
    fn announce_sleep(&self) -> u64;

    /// Returns whether the sleep that was announced until `until` may begin: since then nothing has
    /// come that the worker has to see before.
    fn may_sleep(&self, until: u64) -> bool;

    /// Announces by [`Parker::resume`](crate::Parker::resume) that the worker is awake again.
    /// Returns whether it was woken to search.
    fn end_sleep(&self) -> bool;
}

/// The result of [`Searchers::sleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Whether the worker called `sleep`.
    pub slept: bool,
    /// Whether the worker counts as a searcher from now on: it was woken to search, or found work.
    pub searching: bool,
}

impl Searchers {
    /// Creates the counts of a runtime with this many workers. At most half of them search at a
    /// time, but always one may.
    pub fn new(workers: usize) -> Self {
        Self {
            word: AtomicU64::new(0),
            limit: (workers as u64 / 2).max(1),
        }
    }

    /// Counts the calling worker as a searcher, unless enough others search. Returns whether it
    /// did.
    #[must_use]
    #[inline]
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

    /// Takes the calling worker, which found work, off the count of searchers. If it was the last
    /// searcher and there is `more` work, this wakes one parked worker to search for it.
    ///
    /// `more` returns whether there is work that the caller does not run itself. Threads that pushed
    /// such work may have woken nobody, because the caller counted as a searcher. `wake` is that of
    /// [`wake_one`](Searchers::wake_one).
    #[inline]
    pub fn found(&self, wake: impl FnMut() -> bool, mut more: impl FnMut() -> bool) {
        let before = self.word.fetch_sub(SEARCHING, Ordering::AcqRel);
        if searching(before) != 1 || parked(before) == 0 {
            return;
        }
        // A thread that pushes after this fence finds no searcher. `more` sees what others pushed.
        fence(Ordering::SeqCst);
        let word = self.word.load(Ordering::Relaxed);
        if parked(word) != 0 && searching(word) == 0 && more() {
            self.wake_slow(word, wake, more);
        }
    }

    /// Counts the calling worker as parked, and takes it off the count of searchers if it was one.
    /// The worker looks everywhere once more before it sleeps.
    #[inline]
    pub fn park(&self, was_searching: bool) {
        let change = if was_searching {
            PARKED - SEARCHING
        } else {
            PARKED
        };
        // In one step: a pusher never finds the worker in neither count.
        self.word.fetch_add(change, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Counts the calling worker as awake again. A worker that was woken to search is a searcher
    /// already.
    #[inline]
    pub fn unpark(&self) {
        self.word.fetch_sub(PARKED, Ordering::AcqRel);
    }

    /// Parks the calling worker: sleeps until its next deadline, or until it is woken. `searching`
    /// says whether it counts as a searcher.
    ///
    /// `work` returns whether there is any work; it is called after the worker has announced that
    /// it sleeps. `sleep` sleeps until the given moment, in ns (or [`NEVER`](crate::NEVER)), or
    /// until another thread wakes the worker.
    pub fn sleep(
        &self,
        sleeper: &impl Sleeper,
        searching: bool,
        work: impl FnOnce() -> bool,
        sleep: impl FnOnce(u64),
    ) -> Parked {
        let (slept, woken, work) = self.sleep_as(
            sleeper,
            || self.park(searching),
            || self.unpark(),
            work,
            sleep,
        );
        // A thread that brought work may have found this worker counted as a searcher, and woken no
        // other. So the worker searches again, unless enough others do.
        let searching = woken || (work && self.begin());
        Parked { slept, searching }
    }

    /// Does as [`sleep`](Searchers::sleep), for a worker that is [retired](crate::Limit) and does not
    /// count as a searcher. While it sleeps it counts as a helper in reserve, which no thread wakes
    /// for work.
    ///
    /// `work` returns whether there is anything that the worker itself has to do.
    pub fn sleep_in_reserve(
        &self,
        sleeper: &impl Sleeper,
        work: impl FnOnce() -> bool,
        sleep: impl FnOnce(u64),
    ) -> Parked {
        let (slept, searching, _) =
            self.sleep_as(sleeper, || self.enlist(), || self.strike(), work, sleep);
        // A thread may have claimed the worker to search, which it had seen before it was retired.
        Parked { slept, searching }
    }

    /// Sleeps between `enter` and `leave`, which change the counts. Returns whether the worker
    /// called `sleep`, whether it was woken to search, and what `work` returned.
    #[inline]
    fn sleep_as(
        &self,
        sleeper: &impl Sleeper,
        enter: impl FnOnce(),
        leave: impl FnOnce(),
        work: impl FnOnce() -> bool,
        sleep: impl FnOnce(u64),
    ) -> (bool, bool, bool) {
        // The announcement comes first, and is withdrawn last: a thread that finds this worker
        // counted as parked can claim its parked word.
        let until = sleeper.announce_sleep();
        enter();
        // The last look: behind the fences of both announcements.
        let work = work();
        let sleeps = sleeper.may_sleep(until) && !work;
        if sleeps {
            sleep(until);
        }
        leave();
        (sleeps, sleeper.end_sleep(), work)
    }

    /// Wakes one parked worker to search for work that the caller has pushed, if no worker
    /// searches. Returns whether a worker was woken.
    ///
    /// `wake` tries the workers in an order of its own, by [`Parker::claim_for_search`], until one
    /// is not refused, and wakes that worker if it sleeps. `work` returns whether there is still
    /// work to find.
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

    /// Slow path of [`wake_one`](Searchers::wake_one): some worker is parked, and none searches.
    #[cold]
    fn wake_slow(
        &self,
        mut word: u64,
        mut wake: impl FnMut() -> bool,
        mut work: impl FnMut() -> bool,
    ) -> bool {
        loop {
            // The worker that will be woken counts as a searcher from here on, so that other
            // pushers wake no second one.
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
            // No worker was asleep. Another pusher may have relied on the count: rule 3.
            word = self.word.fetch_sub(SEARCHING, Ordering::AcqRel) - SEARCHING;
            fence(Ordering::SeqCst);
            if parked(word) == 0 || searching(word) != 0 || !work() {
                return false;
            }
        }
    }

    /// Returns the number of workers that search. A hint.
    #[inline]
    pub fn searching(&self) -> usize {
        searching(self.word.load(Ordering::Relaxed)) as usize
    }

    /// Returns the number of parked workers. A hint.
    #[inline]
    pub fn parked(&self) -> usize {
        parked(self.word.load(Ordering::Relaxed)) as usize
    }
}
