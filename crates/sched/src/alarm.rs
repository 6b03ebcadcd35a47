//! The watchdog of a shard: it calls a peer if the owner is stuck.
//!
//! A watched shard has an *alarm*, a timer of the operating system that wakes a thread other than
//! the owner: [`Owner::alarm`](crate::Owner::alarm) sets it. While the owner is awake the alarm is
//! always set, to some part of a ms from now. A healthy owner puts the alarm off by its heartbeat
//! ([`beat`](crate::Shard::beat)). If the owner is stuck, the alarm goes off. The thread that is
//! woken *takes* the alarm, takes the timers that are late, and sets the alarm again. That is a
//! *rescue*.
//!
//! ```text
//! owner                                   the thread that is woken (the taker)
//!   parked word: swap(AWAKE)                word: CAS(w → NEVER), if w has passed
//!   fence(SeqCst)                           fence(SeqCst)
//!   word due, or NEVER? then set it         owner awake? then take what is due, and set it again
//! ```
//!
//! This is Dekker's pattern. An alarm that was taken is set again by its taker, which sees that the
//! owner is awake, or by the owner, which sees that the alarm was taken. Remote threads that arm
//! timers order the published deadlines and the word in the same way. See "The watch" in
//! `PROTOCOLS.md`.
//!
//! No single step changes both the word and the alarm. So a thread that has changed the word sets
//! the alarm, and reads the word again, until both agree. If two threads do this at once, the one
//! that sets the alarm last reads the word after that.

use tourbillon_sync::{AtomicU64, Ordering, fence};

use crate::node::claim::NEVER;

/// The largest [`Times::soon`], in ns.
const SOON: u64 = 200_000;

/// The times of a watchdog, in ns, which follow from the latency. The latency is the bound of what
/// an owner owes: three quarters until a peer is called, and one quarter for the peer to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// How far ahead an alarm is set at most: by an owner that is awake, and by a peer that watches
    /// a stuck owner. Sockets, and all work without a deadline, wait for this long.
    pub(crate) ahead: u64,
    /// A heartbeat pushes off an alarm that is nearer than this.
    pub(crate) margin: u64,
    /// How near a peer that watches a stuck owner sets the alarm at most. It is also by how much
    /// such an alarm may be later than a deadline: a thread that arms a timer then leaves it so.
    pub(crate) soon: u64,
}

impl Times {
    fn of(latency: u64) -> Self {
        let quarter = latency / 4;
        if cfg!(loom) {
            // In the models a margin is small, so that the alarm is set more often.
            let (ahead, margin, soon) = (latency, 2, 4);
            return Self {
                ahead,
                margin,
                soon,
            };
        }
        Self {
            ahead: latency - quarter,
            margin: quarter,
            soon: quarter.min(SOON),
        }
    }
}

/// The word of a shard without a watchdog. It is below all words to which the alarm may be lowered.
pub(crate) const OFF: u64 = 0;

/// The word of an alarm that calls a peer at once: a moment that has passed.
pub(crate) const AT_ONCE: u64 = STANDS;

/// The lowest bit of the word: the alarm *stands*, whatever the deadlines are. The alarm of a
/// healthy owner does, so the owner need not set it for each near timer. Without the bit the alarm
/// *follows* the deadlines: a thread that arms an earlier timer makes it earlier. The alarm of a
/// stuck owner does, so near timers are rescued in time.
pub(crate) const STANDS: u64 = 1;

/// Returns the word of an alarm that stands at the moment `at`, or just after it. [`NEVER`] is such
/// a word.
pub(crate) fn stands(at: u64) -> u64 {
    at.min(NEVER) | STANDS
}

/// Returns the word of an alarm at the moment `at`, or just before it, that follows the deadlines.
fn follows(at: u64) -> u64 {
    // Not `OFF`, which would end the watch.
    at.clamp(STANDS + 1, NEVER) & !STANDS
}

/// The moment until which the owner of a shard may stay away.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The moment to which the alarm is set, in ns; [`NEVER`] if it is not set; or [`OFF`].
    pub(crate) word: AtomicU64,
    /// `None` if the owner is never watched.
    pub(crate) times: Option<Times>,
}

impl Times {
    /// Returns the word for an owner that is well at `now`.
    pub(crate) fn word_if_well(&self, now: u64) -> u64 {
        stands(now.saturating_add(self.ahead))
    }

    /// Returns the word for an owner that sleeps until `until`. An owner that wakes at that moment,
    /// or a little earlier or later, finds an alarm that it need not set.
    pub(crate) fn word_if_asleep(&self, until: u64) -> u64 {
        stands(until.saturating_add(self.ahead - self.margin / 2))
    }

    /// Returns the word for an owner that may be stuck at `now`: its next deadline, within limits.
    pub(crate) fn word_if_stuck(&self, now: u64, deadline: u64) -> u64 {
        let (soon, ahead) = (
            now.saturating_add(self.soon),
            now.saturating_add(self.ahead),
        );
        follows(deadline.clamp(soon, ahead))
    }

    /// Returns the word for an alarm that is put off by `looks` looks, whatever the deadlines are.
    pub(crate) fn word_put_off(&self, now: u64, looks: u32) -> u64 {
        let after = self.ahead.saturating_mul(u64::from(looks)).max(self.soon);
        stands(now.saturating_add(after))
    }
}

impl Watch {
    /// Creates the state of a shard without a watchdog.
    pub(crate) fn off() -> Self {
        Self {
            word: AtomicU64::new(OFF),
            times: None,
        }
    }

    /// Creates the state of a shard with a watchdog whose alarm is not set yet.
    pub(crate) fn new(latency: u64) -> Self {
        Self {
            word: AtomicU64::new(NEVER),
            times: Some(Times::of(latency)),
        }
    }

    /// Creates the state of a shard whose watchdog begins with the first
    /// [call](crate::Shard::call).
    pub(crate) fn when_called(latency: u64) -> Self {
        Self {
            word: AtomicU64::new(OFF),
            times: Some(Times::of(latency)),
        }
    }

    /// Returns the times, or `None` if there is no alarm at present.
    pub(crate) fn times_if_on(&self) -> Option<&Times> {
        if self.is_off() {
            return None;
        }
        self.times.as_ref()
    }

    /// Returns whether there is no alarm at present.
    pub(crate) fn is_off(&self) -> bool {
        self.word.load(Ordering::Relaxed) == OFF
    }

    /// Lowers an alarm that follows the deadlines to `deadline`, unless it is set to no later than
    /// soon after that.
    #[inline]
    pub(crate) fn lower(&self, deadline: u64, set: impl Fn(u64)) {
        let word = self.word.load(Ordering::Relaxed);
        // Usually the alarm stands. `OFF` is below all deadlines.
        if word & STANDS == 0 && word > deadline {
            self.lower_late(word, deadline, set);
        }
    }

    /// Slow path of [`lower`](Watch::lower): the alarm is later than the deadline.
    #[cold]
    fn lower_late(&self, word: u64, deadline: u64, set: impl Fn(u64)) {
        let slack = self.times.map_or(0, |times| times.soon);
        let at = follows(deadline);
        // If the alarm is taken or pushed off meanwhile, it is set earlier than it need be.
        if word > deadline.saturating_add(slack) && self.word.fetch_min(at, Ordering::AcqRel) > at {
            self.apply(set);
        }
    }

    /// Sets the alarm to what the word says, until both agree.
    pub(crate) fn apply(&self, set: impl Fn(u64)) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // `OFF` means no alarm. As a moment it would have passed.
            set(if word == OFF { NEVER } else { word });
            fence(Ordering::SeqCst);
            // If another thread has changed the word meanwhile, its setting of the alarm may have
            // come first.
            let now = self.word.load(Ordering::Acquire);
            if now == word {
                return;
            }
            word = now;
        }
    }

    /// Changes the word from `from` to `to`, and sets the alarm. Returns `false`, and does nothing,
    /// if another thread has changed the word.
    pub(crate) fn change(&self, from: u64, to: u64, set: impl Fn(u64)) -> bool {
        let changed = self
            .word
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if changed {
            self.apply(set);
        }
        changed
    }

    /// Sets the word to `at`, and the alarm.
    pub(crate) fn set(&self, at: u64, set: impl Fn(u64)) {
        if self.word.swap(at, Ordering::AcqRel) != at {
            self.apply(set);
        }
    }
}
