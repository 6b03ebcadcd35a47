//! The watch: how peers come to know that an owner does not come back to its shard.
//!
//! A shard that is watched has an *alarm*, a timer of the operating system that wakes somebody else
//! than the owner: [`Owner::alarm`] sets it. While the owner is awake the alarm is always set, to
//! soon after the next deadline and not too far off in any case. An owner that is well pushes it
//! further each time that it comes by ([`beat`](Shard::beat)); when one is stuck, it goes off, and who
//! gets it *takes* it, does what the owner should have done, and sets it again.
//!
//! ```text
//! owner                                   who got the alarm
//!   parked word: swap(AWAKE)                word: CAS(w → NEVER), if w has passed
//!   fence(SeqCst)                           fence(SeqCst)
//!   word due, or NEVER? then set it         owner awake? then take what is due, and set it again
//! ```
//!
//! It is Dekker's once more: an alarm that was taken is set again by its taker, who sees that the
//! owner is awake, or by the owner, who sees that it was taken. Against those who arm timers from
//! elsewhere the published deadlines and the word are ordered in the same way.
//!
//! The word and the alarm itself cannot be changed in one step. So who has changed the word sets the
//! alarm, and looks at the word again, until they agree: of two at once, the one who set it last has
//! looked at the word after that.

use crate::{
    claim::NEVER,
    owner::Owner,
    shard::Shard,
    sync::{AtomicU64, Ordering, fence},
};

/// How far off its alarm is set by an owner that is awake, in ns. One that is well does not set it to its
/// next deadline: a timer that is nearer than the clock's next tick costs up to 20 µs on some virtual
/// machines, each time, to be set and to be taken away. So what is due on an owner that has been stuck for
/// less than this may be late by as much.
const BEAT: u64 = if cfg!(loom) { 40 } else { 4_000_000 };
/// The nearest moment to which it does. In the models that is soon, which sets the alarm more often.
const NEAREST: u64 = if cfg!(loom) { 4 } else { BEAT };
/// An alarm that is nearer than this is pushed further by a beat.
const MARGIN: u64 = if cfg!(loom) { 2 } else { 1_000_000 };

/// How far off it is set at most by who looks after an owner that is stuck, in ns: sockets and all that
/// has no deadline wait for so long.
const LOOK: u64 = if cfg!(loom) { 40 } else { 1_000_000 };
/// How near it is set at most by that one.
const SOON: u64 = if cfg!(loom) { 4 } else { 200_000 };

/// An alarm that is later than it should be by no more than this is let be by who arms a timer, and by the
/// owner: when that was the one who set it, since somebody looks within a beat,
const WELL_SLACK: u64 = if cfg!(loom) { 0 } else { BEAT };
/// and when it was somebody who looked after the owner.
const STUCK_SLACK: u64 = if cfg!(loom) { 0 } else { 150_000 };

/// The word of a shard that nobody watches: earlier than all that it might be lowered to.
const OFF: u64 = 0;

/// The lowest bit of the word: set by the owner. So an owner that is well is spared to set its alarm for
/// each near timer, and one that may be stuck is looked after in time for those, too.
const OWN: u64 = 1;

/// The word for a moment, or just after it, as the owner writes it; [`NEVER`] is such a word.
fn by_owner(at: u64) -> u64 {
    at.min(NEVER) | OWN
}

/// The word for a moment, or just before it, as others write it.
fn by_others(at: u64) -> u64 {
    at.min(NEVER) & !OWN
}

/// How much later than it should be the alarm may be.
fn slack(word: u64) -> u64 {
    if word & OWN == 0 {
        STUCK_SLACK
    } else {
        WELL_SLACK
    }
}

/// How long it takes from the alarm until somebody comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coming {
    /// In ns; at the least, nearly. Zero if it is not known.
    pub after: u64,
    /// By how much one that comes too early waits awake at most, in ns.
    pub waits: u64,
}

impl Coming {
    /// By how much the alarm goes off before there is something to be taken.
    fn early(self) -> u64 {
        self.after.min(self.waits)
    }
}

/// Until when the owner of a shard may stay away.
#[derive(Debug)]
pub(crate) struct Watch {
    /// What the alarm is set to, in ns, [`NEVER`] if it is not, or [`OFF`].
    word: AtomicU64,
    /// How late a timer may be before others take it, in ns.
    grace: u64,
}

impl Watch {
    /// Nobody watches.
    pub(crate) fn off() -> Self {
        Self {
            word: AtomicU64::new(OFF),
            grace: NEVER,
        }
    }

    pub(crate) fn new(grace: u64) -> Self {
        Self {
            word: AtomicU64::new(NEVER),
            grace,
        }
    }

    /// Nobody watches until somebody is called.
    fn when_called(grace: u64) -> Self {
        Self {
            word: AtomicU64::new(OFF),
            grace,
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.word.load(Ordering::Relaxed) == OFF
    }

    /// When a timer with this deadline is late.
    fn late(&self, deadline: u64) -> u64 {
        deadline.saturating_add(self.grace).min(NEVER)
    }

    /// What the alarm of an owner that is well is set to at `now`.
    fn well(&self, now: u64, deadline: u64) -> u64 {
        let nearest = now.saturating_add(NEAREST);
        let late = self.late(deadline);
        by_owner(late.clamp(nearest, now.saturating_add(BEAT)))
    }

    /// What the alarm is put off to at `now`: so many looks, whatever the deadlines are.
    fn later(&self, now: u64, looks: u32) -> u64 {
        let after = LOOK.saturating_mul(u64::from(looks)).max(SOON);
        // As if the owner had set it: a thread that arms a timer before that lets it be.
        by_owner(now.saturating_add(after))
    }

    /// What the alarm of one that may be stuck is set to, `reach` looks off at most, or as near as it may
    /// be; and by so much before a timer is late as it takes to come.
    fn stuck(&self, now: u64, deadline: u64, reach: u32, comes: Coming) -> u64 {
        let latest = LOOK.saturating_mul(u64::from(reach)).max(SOON);
        let nearest = now.saturating_add(SOON);
        // What is a little less late by then is taken all the same: `overdue` leaves more room than that.
        let room = comes.after.min(self.grace).min(SOON);
        let early = comes.early().saturating_add(room);
        let late = self.late(deadline).saturating_sub(early);
        by_others(late.clamp(nearest, now.saturating_add(latest)))
    }

    /// Sets the alarm to `at`, unless it is set to then, or before, or not much later.
    #[inline]
    fn lower(&self, at: u64, set: impl Fn(u64)) {
        let word = self.word.load(Ordering::Relaxed);
        if word > at.saturating_add(slack(word)) {
            self.lower_to(by_others(at), set);
        }
    }

    /// Sets the alarm to `at`, a word, unless it is set to earlier.
    #[cold]
    fn lower_to(&self, at: u64, set: impl Fn(u64)) {
        if self.word.fetch_min(at, Ordering::AcqRel) > at {
            self.apply(set);
        }
    }

    /// Sets the alarm to what the word says.
    fn apply(&self, set: impl Fn(u64)) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // As a moment, `OFF` is past.
            set(if word == OFF { NEVER } else { word });
            fence(Ordering::SeqCst);
            let now = self.word.load(Ordering::Acquire);
            if now == word {
                return;
            }
            word = now;
        }
    }

    /// Sets the word and the alarm, whatever they are.
    fn set(&self, at: u64, set: impl Fn(u64)) {
        if self.word.swap(at, Ordering::AcqRel) != at {
            self.apply(set);
        }
    }
}

impl<O: Owner> Shard<O> {
    /// A shard whose owner is watched: others are to take what is due here when it is late by `grace`,
    /// in ns. See [`Owner::alarm`], by which they are called, and [`take_alarm`](Shard::take_alarm).
    pub fn watched(owner: O, grace: u64) -> Self {
        Self::with_watch(owner, Watch::new(grace.min(NEVER - 1)))
    }

    /// The same from the first [call](Shard::call) on; until then no alarm is
    /// set.
    pub fn watched_when_called(owner: O, grace: u64) -> Self {
        Self::with_watch(owner, Watch::when_called(grace.min(NEVER - 1)))
    }

    fn set_alarm(&self) -> impl Fn(u64) {
        |at| self.owner().alarm(at)
    }

    /// A deadline was published while the owner may be awake.
    #[inline]
    pub(crate) fn lower_alarm(&self, deadline: u64) {
        let watch = &self.watch;
        // As a rule it goes off before the timer is due, or is off, which is earlier than all.
        if watch.word.load(Ordering::Relaxed) > deadline {
            watch.lower(watch.late(deadline), self.set_alarm());
        }
    }

    /// The owner comes by at `now`, in ns, and is well: its alarm is pushed further, if it is near.
    /// For the owner, whenever it is awake: after it has slept, before anything else is run, and then
    /// now and again, each ms if it can. Costs a fence and some loads in most cases.
    pub fn beat(&self, now: u64) {
        let watch = &self.watch;
        if watch.grace == NEVER {
            return;
        }
        fence(Ordering::SeqCst);
        // Behind the fence: another may have called meanwhile, for the first time.
        if watch.is_off() {
            return;
        }
        let want = watch.well(now, self.next_deadline());
        let word = watch.word.load(Ordering::Acquire);
        if word < now.saturating_add(MARGIN) || word > want.saturating_add(slack(word)) {
            watch.set(want, self.set_alarm());
            self.look_again(|next| watch.well(now, next));
        }
    }

    /// Who armed a timer while the alarm was set may have relied on it as it was. And who found it not
    /// set, set it for its own timer, which may be farther off than it is to be set at most.
    fn look_again(&self, want: impl Fn(u64) -> u64) {
        fence(Ordering::SeqCst);
        self.watch
            .lower(want(self.next_deadline()), self.set_alarm());
    }

    /// The owner, which has announced that it sleeps until `until`, has nobody called before that has
    /// passed and it has not come: the system may have others run in its place. One that will be awake again before the alarm goes off may as well
    /// leave it, and save the setting: at worst somebody comes for nothing.
    pub fn rest(&self, until: u64) {
        let watch = &self.watch;
        let word = watch.word.load(Ordering::Relaxed);
        if word == OFF {
            return;
        }
        let late = by_owner(watch.late(until).max(until.saturating_add(NEAREST)));
        // As the owner set it before an earlier sleep, or when it came by: it leaves the same time, or nearly, and
        // [`beat`](Shard::beat) would let it be, too.
        let is_near = word <= late && word.saturating_add(2 * MARGIN) >= late;
        if word & OWN == 0 || !is_near {
            watch.set(late, self.set_alarm());
        }
    }

    /// When the alarm goes off, in ns; [`NEVER`] if it is not set. A hint.
    pub fn alarm(&self) -> u64 {
        match self.watch.word.load(Ordering::Relaxed) {
            OFF => NEVER,
            at => at,
        }
    }

    /// The alarm went off, and the calling thread, which is not the owner, got to know; `now` was read
    /// after that. True if it is the one to [rescue](Shard::is_late) what is here: it then calls
    /// [`expire`](Shard::expire), and after that [`watch_on`](Shard::watch_on), before it runs anything.
    #[must_use]
    pub fn take_alarm(&self, now: u64) -> bool {
        self.gone_off(now)
            .is_some_and(|word| self.take_alarm_at(word))
    }

    /// What the alarm was set to, if that has passed at `now`.
    fn gone_off(&self, now: u64) -> Option<u64> {
        let watch = &self.watch;
        let word = watch.word.load(Ordering::Acquire);
        if word == OFF || word == NEVER {
            return None;
        }
        if word > now {
            // It was set again since it went off. Should it have gone off for that very moment, by a
            // clock that is a little ahead, that is not lost by this.
            watch.apply(self.set_alarm());
            return None;
        }
        Some(word)
    }

    /// Takes the alarm before it has gone off: for who has [set](Shard::watch_on) it, has [waited](Shard::awaited)
    /// since, and is to do what it would call somebody for. True as in [`take_alarm`](Shard::take_alarm); false if
    /// it is not set to `word` any more.
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

    /// For who came too early, and has set the alarm again: the moment, if it is as near as that one waits awake, at
    /// which there is something to be taken; and what the alarm is set to, by which it [takes](Shard::take_alarm_at)
    /// it then. Should it not come to that, the alarm calls somebody. None before a timer that
    /// [may be late](crate::Options::tolerance).
    pub fn awaited(&self, now: u64, comes: Coming) -> Option<(u64, u64)> {
        let watch = &self.watch;
        let word = watch.word.load(Ordering::Relaxed);
        // Otherwise the owner is well, or another has come.
        if word == OFF || word & OWN != 0 {
            return None;
        }
        let next = self.next_deadline();
        // When `overdue` answers with this deadline.
        let at = next.saturating_add(watch.grace.saturating_sub(SOON));
        let is_near = now < at && at - now <= comes.early();
        (is_near && self.soonest() == next).then_some((at, word))
    }

    /// The deadline up to which what is due at `now` is to be taken by who looks after the owner: what will
    /// not be late before the next look is left.
    pub fn overdue(&self, now: u64) -> u64 {
        now.saturating_sub(self.watch.grace.saturating_sub(SOON))
    }

    /// Whether the owner, awake or asleep, has let the next deadline pass by more than the grace.
    pub fn is_late(&self, now: u64) -> bool {
        self.watch.late(self.next_deadline()) <= now
    }

    /// Sets the alarm again that the calling thread has taken, if the owner is awake; whether it is.
    /// One that is asleep sets it itself when it wakes. After several looks at an owner that is stuck, and
    /// for whom there was nothing to do, the next may be further off: by so many times the usual, unless
    /// there is a deadline before. With zero it is as near as can be.
    pub fn watch_on(&self, now: u64, reach: u32) -> bool {
        self.watch_on_sooner(now, reach, Coming::default())
    }

    /// The same for who knows how long it takes from the alarm until somebody comes: for a deadline it is set so much
    /// earlier, and as much again, as it may take longer, but so that who comes in that time finds the timer due, or
    /// will in a moment for which it [waits](Shard::awaited).
    pub fn watch_on_sooner(&self, now: u64, reach: u32, comes: Coming) -> bool {
        if !self.parker().is_awake() {
            return false;
        }
        let watch = &self.watch;
        let want = |next| watch.stuck(now, next, reach, comes);
        let set = watch.word.compare_exchange(
            NEVER,
            want(self.next_deadline()),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        // Otherwise the owner has, or who lowered it.
        if set.is_ok() {
            watch.apply(self.set_alarm());
        }
        self.look_again(want);
        true
    }

    /// Sets the alarm again that the calling thread has taken, as [`watch_on`](Shard::watch_on)
    /// does, but without regard to deadlines: to `looks` times the usual time from `now`, or
    /// earlier. True if the owner is awake.
    ///
    /// For a thread that keeps all its looks at owners rare, since each of them takes a core from
    /// one.
    pub fn watch_on_rarely(&self, now: u64, looks: u32) -> bool {
        if !self.parker().is_awake() {
            return false;
        }
        let watch = &self.watch;
        watch.lower_to(watch.later(now, looks), self.set_alarm());
        true
    }

    /// The alarm went off, and the calling thread, which is not the owner, got to know, and does
    /// not come: it leaves the alarm set to go off again, `looks` times the usual time from `now`,
    /// or as soon as can be if that is zero. `now` was read after the alarm went off. True if the
    /// alarm was not set again by another meanwhile.
    ///
    /// That holds whether the owner is awake or not.
    pub fn put_off(&self, now: u64, looks: u32) -> bool {
        let Some(word) = self.gone_off(now) else {
            return false;
        };
        let (watch, later) = (&self.watch, self.watch.later(now, looks));
        let is_set = watch
            .word
            .compare_exchange(word, later, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if is_set {
            watch.apply(self.set_alarm());
        }
        is_set
    }

    /// Has somebody called at once, whatever the alarm was set to: the owner will not come back for a
    /// while, and knows it; or nobody knows what the alarm is set to.
    pub fn call(&self) {
        if self.watch.grace != NEVER {
            // In the past.
            self.watch.word.swap(OFF + 1, Ordering::AcqRel);
            self.watch.apply(self.set_alarm());
        }
    }

    /// Ends the watch until the next [call](Shard::call): the alarm is not set any more, and no
    /// thread sets it, but one that has somebody called. For the owner. A thread that has taken the
    /// alarm before this may still look after the owner.
    pub fn dismiss(&self) {
        self.watch.set(OFF, self.set_alarm());
    }
}
