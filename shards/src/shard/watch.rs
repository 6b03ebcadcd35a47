//! The operations of the watchdog on a shard. `park/watchdog.rs` has the protocol and the word.

use super::Shard;
use crate::{
    node::claim::NEVER,
    owner::Owner,
    park::watchdog::{Coming, MARGIN, NEAREST, OFF, OWN, SOON, Watch, by_owner, slack},
    sync::{Ordering, fence},
};

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
