//! The watchdog of a shard: it calls a peer if the owner is stuck.
//!
//! A watched shard has an *alarm*, a timer of the operating system that wakes a thread other than
//! the owner: [`Owner::alarm`](crate::Owner::alarm) sets it. While the owner is awake the alarm is
//! always set, to some ms from now at most. A healthy owner puts the alarm off by its heartbeat
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

use crate::{
    node::claim::NEVER,
    sync::{AtomicU64, Ordering, fence},
};

/// How far ahead an owner that is awake sets its alarm, in ns. It does not set the alarm to its
/// next deadline. On some virtual machines a timer before the clock's next tick costs up to 20 µs
/// each time that it is set and removed. So a timer of an owner that has been stuck for less than
/// this may be late by as much.
const BEAT: u64 = if cfg!(loom) { 40 } else { 4_000_000 };
/// How near such an owner sets its alarm, in ns. In the models this is small, so that the alarm is
/// set more often.
pub(crate) const NEAREST: u64 = if cfg!(loom) { 4 } else { BEAT };
/// A heartbeat pushes off an alarm that is nearer than this, in ns.
pub(crate) const MARGIN: u64 = if cfg!(loom) { 2 } else { 1_000_000 };

/// How far ahead a peer that watches a stuck owner sets the alarm at most, in ns. Sockets, and all
/// work without a deadline, wait for this long.
const LOOK: u64 = if cfg!(loom) { 40 } else { 1_000_000 };
/// How near such a peer sets the alarm at most, in ns.
pub(crate) const SOON: u64 = if cfg!(loom) { 4 } else { 200_000 };

/// An alarm that the owner has set may be later than it should be by this, in ns. The owner, and a
/// thread that arms a timer, then leave it so: a peer comes within a heartbeat.
const WELL_SLACK: u64 = if cfg!(loom) { 0 } else { BEAT };
/// An alarm that another thread has set may be later than it should be by this, in ns.
const STUCK_SLACK: u64 = if cfg!(loom) { 0 } else { 150_000 };

/// The word of a shard without a watchdog. It is below all words to which the alarm may be lowered.
pub(crate) const OFF: u64 = 0;

/// The lowest bit of the word: the owner has written it. An alarm of the owner allows for more
/// slack, so an owner that is well need not set its alarm for each near timer. An alarm of another
/// thread allows for little, so that near timers of a stuck owner are rescued in time.
pub(crate) const OWN: u64 = 1;

/// Returns the word that the owner writes for the moment `at`, or just after it. [`NEVER`] is such
/// a word.
pub(crate) fn by_owner(at: u64) -> u64 {
    at.min(NEVER) | OWN
}

/// Returns the word that other threads write for the moment `at`, or just before it.
fn by_others(at: u64) -> u64 {
    at.min(NEVER) & !OWN
}

/// Returns by how much the alarm may be later than it should be, in ns.
pub(crate) fn slack(word: u64) -> u64 {
    if word & OWN == 0 {
        STUCK_SLACK
    } else {
        WELL_SLACK
    }
}

/// The time from the alarm until a peer looks at the shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coming {
    /// How long the peer takes in ns, about the shortest time. Zero if it is not known.
    pub after: u64,
    /// How long a peer that comes too early stays awake at most, in ns.
    pub waits: u64,
}

impl Coming {
    /// Returns by how much earlier than the timer the alarm may go off, in ns.
    pub(crate) fn early(self) -> u64 {
        self.after.min(self.waits)
    }
}

/// The moment until which the owner of a shard may stay away.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The moment to which the alarm is set, in ns; [`NEVER`] if it is not set; or [`OFF`].
    pub(crate) word: AtomicU64,
    /// How late a timer may be before a peer takes it, in ns. [`NEVER`]: peers never take timers.
    pub(crate) grace: u64,
}

impl Watch {
    /// Creates the state of a shard without a watchdog.
    pub(crate) fn off() -> Self {
        Self {
            word: AtomicU64::new(OFF),
            grace: NEVER,
        }
    }

    /// Creates the state of a shard with a watchdog whose alarm is not set yet.
    pub(crate) fn new(grace: u64) -> Self {
        Self {
            word: AtomicU64::new(NEVER),
            grace,
        }
    }

    /// Creates the state of a shard whose watchdog begins with the first
    /// [call](crate::Shard::call).
    pub(crate) fn when_called(grace: u64) -> Self {
        Self {
            word: AtomicU64::new(OFF),
            grace,
        }
    }

    /// Returns whether there is no alarm at present.
    pub(crate) fn is_off(&self) -> bool {
        self.word.load(Ordering::Relaxed) == OFF
    }

    /// Returns the moment from which a timer with this deadline is late.
    pub(crate) fn late(&self, deadline: u64) -> u64 {
        deadline.saturating_add(self.grace).min(NEVER)
    }

    /// Returns the word for an owner that is well.
    pub(crate) fn word_if_well(&self, now: u64, deadline: u64) -> u64 {
        let nearest = now.saturating_add(NEAREST);
        let late = self.late(deadline);
        by_owner(late.clamp(nearest, now.saturating_add(BEAT)))
    }

    /// Returns the word for an alarm that is put off by `looks` looks, whatever the deadlines are.
    pub(crate) fn word_put_off(&self, now: u64, looks: u32) -> u64 {
        let after = LOOK.saturating_mul(u64::from(looks)).max(SOON);
        // It looks like an alarm of the owner, so that a thread that arms a timer for an earlier
        // moment leaves it as it is.
        by_owner(now.saturating_add(after))
    }

    /// Returns the word for an owner that may be stuck: at most `reach` looks ahead, or as near as
    /// possible; and before a timer is late by the time that a peer takes to come.
    pub(crate) fn word_if_stuck(&self, now: u64, deadline: u64, reach: u32, comes: Coming) -> u64 {
        let latest = LOOK.saturating_mul(u64::from(reach)).max(SOON);
        let nearest = now.saturating_add(SOON);
        // Room for a peer that takes longer. A peer that comes early by less than this takes the
        // timer all the same: `overdue` leaves more room.
        let room = comes.after.min(self.grace).min(SOON);
        let early = comes.early().saturating_add(room);
        let late = self.late(deadline).saturating_sub(early);
        by_others(late.clamp(nearest, now.saturating_add(latest)))
    }

    /// Lowers the alarm to `at`, unless it is set to no later than that and the slack.
    #[inline]
    pub(crate) fn lower(&self, at: u64, set: impl Fn(u64)) {
        let word = self.word.load(Ordering::Relaxed);
        if word > at.saturating_add(slack(word)) {
            self.lower_to(by_others(at), set);
        }
    }

    /// Lowers the alarm to the word `at`, unless it is set to no later.
    #[cold]
    pub(crate) fn lower_to(&self, at: u64, set: impl Fn(u64)) {
        if self.word.fetch_min(at, Ordering::AcqRel) > at {
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

    /// Sets the word to `at`, and the alarm.
    pub(crate) fn set(&self, at: u64, set: impl Fn(u64)) {
        if self.word.swap(at, Ordering::AcqRel) != at {
            self.apply(set);
        }
    }
}
