//! The watchdog of a shard: it calls a peer if the owner is stuck.
//!
//! A watched shard has an *alarm*, a timer of the operating system that wakes a thread other than
//! the owner: [`Owner::alarm`] sets it. While the owner is awake the alarm is always set, to some
//! ms from now at most. An owner that is well pushes the alarm off by its heartbeat
//! ([`beat`](Shard::beat)). If the owner is stuck, the alarm goes off. The thread that is woken
//! *takes* the alarm, takes the timers that are late, and sets the alarm again. That is a *rescue*.
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
    claim::NEVER,
    owner::Owner,
    shard::Shard,
    sync::{AtomicU64, Ordering, fence},
};

/// How far ahead an owner that is awake sets its alarm, in ns. It does not set the alarm to its
/// next deadline. On some virtual machines a timer before the clock's next tick costs up to 20 µs
/// each time that it is set and removed. So a timer of an owner that has been stuck for less than
/// this may be late by as much.
const BEAT: u64 = if cfg!(loom) { 40 } else { 4_000_000 };
/// How near such an owner sets its alarm, in ns. In the models this is small, so that the alarm is
/// set more often.
const NEAREST: u64 = if cfg!(loom) { 4 } else { BEAT };
/// A heartbeat pushes off an alarm that is nearer than this, in ns.
const MARGIN: u64 = if cfg!(loom) { 2 } else { 1_000_000 };

/// How far ahead a peer that watches a stuck owner sets the alarm at most, in ns. Sockets, and all
/// work without a deadline, wait for this long.
const LOOK: u64 = if cfg!(loom) { 40 } else { 1_000_000 };
/// How near such a peer sets the alarm at most, in ns.
const SOON: u64 = if cfg!(loom) { 4 } else { 200_000 };

/// An alarm that the owner has set may be later than it should be by this, in ns. The owner, and a
/// thread that arms a timer, then leave it so: a peer comes within a heartbeat.
const WELL_SLACK: u64 = if cfg!(loom) { 0 } else { BEAT };
/// An alarm that another thread has set may be later than it should be by this, in ns.
const STUCK_SLACK: u64 = if cfg!(loom) { 0 } else { 150_000 };

/// The word of a shard without a watchdog. It is below all words to which the alarm may be lowered.
const OFF: u64 = 0;

/// The lowest bit of the word: the owner has written it. An alarm of the owner allows for more
/// slack, so an owner that is well need not set its alarm for each near timer. An alarm of another
/// thread allows for little, so that near timers of a stuck owner are rescued in time.
const OWN: u64 = 1;

/// Returns the word that the owner writes for the moment `at`, or just after it. [`NEVER`] is such
/// a word.
fn by_owner(at: u64) -> u64 {
    at.min(NEVER) | OWN
}

/// Returns the word that other threads write for the moment `at`, or just before it.
fn by_others(at: u64) -> u64 {
    at.min(NEVER) & !OWN
}

/// Returns by how much the alarm may be later than it should be, in ns.
fn slack(word: u64) -> u64 {
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
    fn early(self) -> u64 {
        self.after.min(self.waits)
    }
}

/// The moment until which the owner of a shard may stay away.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The moment to which the alarm is set, in ns; [`NEVER`] if it is not set; or [`OFF`].
    word: AtomicU64,
    /// How late a timer may be before a peer takes it, in ns. [`NEVER`]: peers never take timers.
    grace: u64,
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

    /// Creates the state of a shard whose watchdog begins with the first [call](Shard::call).
    fn when_called(grace: u64) -> Self {
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
    fn late(&self, deadline: u64) -> u64 {
        deadline.saturating_add(self.grace).min(NEVER)
    }

    /// Returns the word for an owner that is well.
    fn word_if_well(&self, now: u64, deadline: u64) -> u64 {
        let nearest = now.saturating_add(NEAREST);
        let late = self.late(deadline);
        by_owner(late.clamp(nearest, now.saturating_add(BEAT)))
    }

    /// Returns the word for an alarm that is put off by `looks` looks, whatever the deadlines are.
    fn word_put_off(&self, now: u64, looks: u32) -> u64 {
        let after = LOOK.saturating_mul(u64::from(looks)).max(SOON);
        // It looks like an alarm of the owner, so that a thread that arms a timer for an earlier
        // moment leaves it as it is.
        by_owner(now.saturating_add(after))
    }

    /// Returns the word for an owner that may be stuck: at most `reach` looks ahead, or as near as
    /// possible; and before a timer is late by the time that a peer takes to come.
    fn word_if_stuck(&self, now: u64, deadline: u64, reach: u32, comes: Coming) -> u64 {
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
    fn lower(&self, at: u64, set: impl Fn(u64)) {
        let word = self.word.load(Ordering::Relaxed);
        if word > at.saturating_add(slack(word)) {
            self.lower_to(by_others(at), set);
        }
    }

    /// Lowers the alarm to the word `at`, unless it is set to no later.
    #[cold]
    fn lower_to(&self, at: u64, set: impl Fn(u64)) {
        if self.word.fetch_min(at, Ordering::AcqRel) > at {
            self.apply(set);
        }
    }

    /// Sets the alarm to what the word says, until both agree.
    fn apply(&self, set: impl Fn(u64)) {
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
    fn set(&self, at: u64, set: impl Fn(u64)) {
        if self.word.swap(at, Ordering::AcqRel) != at {
            self.apply(set);
        }
    }
}

impl<O: Owner> Shard<O> {
    /// Creates a shard whose owner is watched: peers take a due timer of the shard when it is late
    /// by `grace`, in ns. [`Owner::alarm`] wakes a peer, and the peer calls
    /// [`take_alarm`](Shard::take_alarm).
    pub fn watched(owner: O, grace: u64) -> Self {
        Self::with_watch(owner, Watch::new(grace.min(NEVER - 1)))
    }

    /// Creates a shard whose owner is watched from the first [call](Shard::call) on. Until then no
    /// alarm is set.
    pub fn watched_when_called(owner: O, grace: u64) -> Self {
        Self::with_watch(owner, Watch::when_called(grace.min(NEVER - 1)))
    }

    /// Returns a function that sets the alarm of this shard.
    fn set_alarm(&self) -> impl Fn(u64) {
        |at| self.owner().alarm(at)
    }

    /// Lowers the alarm to a deadline that was published while the owner may be awake.
    #[inline]
    pub(crate) fn lower_alarm(&self, deadline: u64) {
        let watch = &self.watch;
        // Usually the alarm goes off before the timer is due, or it is `OFF`, which is below all
        // deadlines.
        if watch.word.load(Ordering::Relaxed) > deadline {
            watch.lower(watch.late(deadline), self.set_alarm());
        }
    }

    /// Reports that the owner is well at `now`, in ns, and pushes its alarm off if it is near. This
    /// is the owner's heartbeat. The owner calls it whenever it is awake: after it has slept,
    /// before it runs anything else, and then about once a ms. Usually a call costs a fence and
    /// some loads.
    pub fn beat(&self, now: u64) {
        let watch = &self.watch;
        if watch.grace == NEVER {
            return;
        }
        fence(Ordering::SeqCst);
        // Behind the fence: another thread may have made the first call meanwhile.
        if watch.is_off() {
            return;
        }
        let want = watch.word_if_well(now, self.next_deadline());
        let word = watch.word.load(Ordering::Acquire);
        // The alarm is near, or later than it should be, or was taken (`NEVER`).
        if word < now.saturating_add(MARGIN) || word > want.saturating_add(slack(word)) {
            watch.set(want, self.set_alarm());
            self.lower_to_deadline(|next| watch.word_if_well(now, next));
        }
    }

    /// Lowers the alarm once more, to the deadline that is published after the caller has set it. A
    /// thread that armed a timer before may have relied on the old alarm. A thread that found no
    /// alarm has set one for its own timer, which may be further ahead than the owner allows.
    fn lower_to_deadline(&self, want: impl Fn(u64) -> u64) {
        fence(Ordering::SeqCst);
        self.watch
            .lower(want(self.next_deadline()), self.set_alarm());
    }

    /// Pushes the alarm off for the sleep of the owner, which has announced that it sleeps until
    /// `until`. The alarm goes off after that: the system may run other threads in place of the
    /// owner. An owner that will be awake before the present alarm goes off need not call this: at
    /// worst a peer is woken in vain.
    pub fn rest(&self, until: u64) {
        let watch = &self.watch;
        let word = watch.word.load(Ordering::Relaxed);
        if word == OFF {
            return;
        }
        let late = by_owner(watch.late(until).max(until.saturating_add(NEAREST)));
        // If the owner has set the alarm to nearly the same time, by a heartbeat or before an
        // earlier sleep, it stays: [`beat`](Shard::beat) would leave it, too.
        let is_near = word <= late && word.saturating_add(2 * MARGIN) >= late;
        if word & OWN == 0 || !is_near {
            watch.set(late, self.set_alarm());
        }
    }

    /// Returns when the alarm goes off, in ns, or [`NEVER`] if it is not set. A hint.
    pub fn alarm(&self) -> u64 {
        match self.watch.word.load(Ordering::Relaxed) {
            OFF => NEVER,
            at => at,
        }
    }

    /// Takes an alarm that has gone off. The calling thread is not the owner, and has read `now`
    /// after the alarm woke it. If this returns `true`, the caller [rescues](Shard::is_late) the
    /// timers of the shard: it calls [`expire`](Shard::expire), then [`watch_on`](Shard::watch_on),
    /// and only then runs anything.
    #[must_use]
    pub fn take_alarm(&self, now: u64) -> bool {
        self.gone_off(now)
            .is_some_and(|word| self.take_alarm_at(word))
    }

    /// Returns the word of an alarm that has gone off at `now`.
    fn gone_off(&self, now: u64) -> Option<u64> {
        let watch = &self.watch;
        let word = watch.word.load(Ordering::Acquire);
        if word == OFF || word == NEVER {
            return None;
        }
        if word > now {
            // The alarm was set again since it went off. It may have gone off for this very moment,
            // by a clock that is a little ahead. So it is set once more, and is not lost.
            watch.apply(self.set_alarm());
            return None;
        }
        Some(word)
    }

    /// Takes an alarm before it goes off. The caller has [set](Shard::watch_on) it and has
    /// [waited](Shard::awaited) since, and does itself what the alarm would wake another thread
    /// for. Returns `true` as [`take_alarm`](Shard::take_alarm) does, and `false` if the alarm is
    /// not set to `word` any more.
    #[must_use]
    pub fn take_alarm_at(&self, word: u64) -> bool {
        let taken = self
            .watch
            .word
            .compare_exchange(word, NEVER, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        fence(Ordering::SeqCst);
        taken
    }

    /// Returns the moment at which there will be a timer to take, and the word of the alarm, for a
    /// peer that has come too early and has set the alarm again. The peer stays awake until that
    /// moment and then takes the alarm by its word ([`take_alarm_at`](Shard::take_alarm_at)). If it
    /// does not come to that, the alarm wakes another thread. Returns `None` if the moment is
    /// further off than the peer stays awake at most, or if the next timer [may be
    /// late](crate::Options::tolerance).
    pub fn awaited(&self, now: u64, comes: Coming) -> Option<(u64, u64)> {
        let watch = &self.watch;
        let word = watch.word.load(Ordering::Relaxed);
        // The owner is well again, or another thread has come.
        if word == OFF || word & OWN != 0 {
            return None;
        }
        let next = self.next_deadline();
        // From this moment on, `overdue` returns this deadline or a later one.
        let at = next.saturating_add(watch.grace.saturating_sub(SOON));
        let is_near = now < at && at - now <= comes.early();
        (is_near && self.soonest() == next).then_some((at, word))
    }

    /// Returns the deadline up to which a peer takes timers at `now`. It leaves the timers that
    /// will not be late before its next look.
    pub fn overdue(&self, now: u64) -> u64 {
        now.saturating_sub(self.watch.grace.saturating_sub(SOON))
    }

    /// Returns whether the next deadline has passed by more than the grace, whether the owner is
    /// awake or asleep.
    pub fn is_late(&self, now: u64) -> bool {
        self.watch.late(self.next_deadline()) <= now
    }

    /// Sets the alarm again that the calling thread has taken, if the owner is awake. Returns
    /// whether it is. An owner that is asleep sets the alarm itself when it wakes.
    ///
    /// The next look comes at most `reach` times the usual time from `now`, and earlier for a
    /// deadline. A peer passes a larger `reach` after several looks that found nothing to do. With
    /// zero the alarm is set as near as possible.
    pub fn watch_on(&self, now: u64, reach: u32) -> bool {
        self.watch_on_sooner(now, reach, Coming::default())
    }

    /// Sets the alarm again as [`watch_on`](Shard::watch_on) does, but earlier before a deadline:
    /// by the time that a peer takes to come (`comes`), and by as much again for a peer that takes
    /// longer. A peer that comes in that time finds the timer due, or due so soon that it [stays
    /// awake](Shard::awaited).
    pub fn watch_on_sooner(&self, now: u64, reach: u32, comes: Coming) -> bool {
        if !self.parker().is_awake() {
            return false;
        }
        let watch = &self.watch;
        let want = |next| watch.word_if_stuck(now, next, reach, comes);
        let set = watch.word.compare_exchange(
            NEVER,
            want(self.next_deadline()),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        // Otherwise the owner has set the alarm, or a thread that armed a timer.
        if set.is_ok() {
            watch.apply(self.set_alarm());
        }
        // A thread may have armed a timer while the alarm was taken.
        self.lower_to_deadline(want);
        true
    }

    /// Sets the alarm again that the calling thread has taken, whatever the deadlines are: to
    /// `looks` times the usual time from `now`, or earlier. Returns whether the owner is awake. If
    /// it is asleep, nothing is set.
    ///
    /// This is for a thread that looks at owners rarely, since each look takes a core from one of
    /// them.
    pub fn watch_on_rarely(&self, now: u64, looks: u32) -> bool {
        if !self.parker().is_awake() {
            return false;
        }
        let watch = &self.watch;
        watch.lower_to(watch.word_put_off(now, looks), self.set_alarm());
        true
    }

    /// Puts off an alarm that has gone off and that the calling thread does not answer. The alarm
    /// will go off again `looks` times the usual time from `now`, or as soon as possible if `looks`
    /// is zero. The caller is not the owner, and has read `now` after the alarm went off. Returns
    /// `false` if another thread has set the alarm meanwhile.
    ///
    /// It makes no difference whether the owner is awake.
    pub fn put_off(&self, now: u64, looks: u32) -> bool {
        let Some(word) = self.gone_off(now) else {
            return false;
        };
        let (watch, later) = (&self.watch, self.watch.word_put_off(now, looks));
        // The exchange fails if another thread has taken or set the alarm meanwhile.
        let is_set = watch
            .word
            .compare_exchange(word, later, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if is_set {
            watch.apply(self.set_alarm());
        }
        is_set
    }

    /// Calls a peer at once, whatever the alarm is set to. The owner calls this if it will not come
    /// back for a while; another thread, if it does not know what the alarm is set to.
    pub fn call(&self) {
        if self.watch.grace != NEVER {
            // A moment that has passed.
            self.watch.word.swap(OFF + 1, Ordering::AcqRel);
            self.watch.apply(self.set_alarm());
        }
    }

    /// Switches the watchdog off until the next [call](Shard::call): the alarm is not set, and no
    /// other operation sets it. For the owner. A thread that has taken the alarm before this may
    /// still rescue timers.
    pub fn dismiss(&self) {
        self.watch.set(OFF, self.set_alarm());
    }
}
