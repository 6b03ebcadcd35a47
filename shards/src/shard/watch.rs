//! The operations of the watchdog on a shard. `park/watchdog.rs` has the protocol and the word.

use super::Shard;
use tourbillon_sync::{Ordering, fence};

use crate::{
    node::claim::NEVER,
    owner::Owner,
    park::watchdog::{AT_ONCE, OFF, STANDS, Times, Watch},
};

impl<O: Owner> Shard<O> {
    /// Creates a shard whose owner is watched: if the owner does not return to its loop, peers take
    /// its due timers within about `latency`, in ns, which is less than [`NEVER`].
    /// [`Owner::alarm`] wakes a peer, and the peer calls [`take_alarm`](Shard::take_alarm).
    pub fn watched(owner: O, latency: u64) -> Self {
        Self::with_watch(owner, Watch::new(latency.min(NEVER - 1)))
    }

    /// Creates a shard whose owner is watched from the first [call](Shard::call) on. Until then no
    /// alarm is set.
    pub fn watched_when_called(owner: O, latency: u64) -> Self {
        Self::with_watch(owner, Watch::when_called(latency.min(NEVER - 1)))
    }

    /// Returns a function that sets the alarm of this shard.
    fn set_alarm(&self) -> impl Fn(u64) {
        |at| self.owner().alarm(at)
    }

    /// Lowers the alarm to a deadline that was published, if the alarm follows the deadlines.
    #[inline]
    pub(crate) fn lower_alarm(&self, deadline: u64) {
        self.watch.lower(deadline, self.set_alarm());
    }

    /// Reports that the owner is well at `now`, in ns, and pushes its alarm off if it is near. This
    /// is the owner's heartbeat. The owner calls it whenever it is awake: after it has slept,
    /// before it runs anything else, and then each time that it is in its loop. Usually a call
    /// costs a fence and some loads.
    pub fn beat(&self, now: u64) {
        let watch = &self.watch;
        if watch.times.is_none() {
            return;
        }
        fence(Ordering::SeqCst);
        // Behind the fence: another thread may have made the first call meanwhile.
        let Some(times) = watch.times_if_on() else {
            return;
        };
        let want = times.word_if_well(now);
        let word = watch.word.load(Ordering::Acquire);
        // The alarm is near, or later than it should be, or was taken (`NEVER`), or a peer watches.
        if word < now.saturating_add(times.margin) || word > want || word & STANDS == 0 {
            watch.set(want, self.set_alarm());
        }
    }

    /// Pushes the alarm off for the sleep of the owner, which has announced that it sleeps until
    /// `until`. The alarm goes off after that: the system may run other threads in place of the
    /// owner. An owner that will be awake before the present alarm goes off need not call this: at
    /// worst a peer is woken in vain.
    pub fn rest(&self, until: u64) {
        let watch = &self.watch;
        let Some(times) = watch.times_if_on() else {
            return;
        };
        let word = watch.word.load(Ordering::Relaxed);
        // The alarm stays if the owner, when it wakes in time, would leave it, too.
        let near = until.saturating_add(times.margin);
        let stays = (near..=times.word_if_well(until)).contains(&word);
        if word & STANDS == 0 || !stays {
            watch.set(times.word_if_asleep(until), self.set_alarm());
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
        let take = |at| {
            let word = &self.watch.word;
            word.compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Relaxed)
        };
        let taken = self.gone_off(now).is_some_and(|word| take(word).is_ok());
        // The caller now reads whether the owner is awake.
        fence(Ordering::SeqCst);
        taken
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

    /// Returns whether a timer is due at `now`, whether the owner is awake or asleep.
    pub fn is_late(&self, now: u64) -> bool {
        self.next_deadline() <= now
    }

    /// Sets the alarm again that the calling thread has taken. Returns whether the owner may be
    /// stuck: it does not sleep, or it should have woken by now and has no core.
    ///
    /// The alarm goes off at the next deadline, but soon at the earliest, and after three quarters
    /// of the latency at the latest. So a timer that another thread arms at the same moment is late
    /// by no more than that, whichever of the two threads is first. If the owner sleeps until later
    /// than `now`, the alarm goes off after the end of its sleep.
    pub fn watch_on(&self, now: u64) -> bool {
        self.watch_again(now, |times| times.word_if_stuck(now, self.next_deadline()))
    }

    /// Like [`watch_on`](Shard::watch_on), but whatever the deadlines are: sets the alarm of an
    /// owner that may be stuck to `looks` times the longest time to the next visit from `now`, or
    /// as near as possible if `looks` is zero.
    ///
    /// This is for a thread that looks at owners rarely, since each look takes a core from one of
    /// them, or that looks again before it takes anything.
    pub fn watch_on_rarely(&self, now: u64, looks: u32) -> bool {
        self.watch_again(now, |times| times.word_put_off(now, looks))
    }

    /// Sets the alarm that the calling thread has taken: to `if_stuck` if the owner may be stuck,
    /// which is returned.
    fn watch_again(&self, now: u64, if_stuck: impl FnOnce(Times) -> u64) -> bool {
        let Some(times) = self.watch.times else {
            return false;
        };
        let (want, may_be_stuck) = match self.parker().parked_until() {
            // Whoever wakes the owner makes it set the alarm itself.
            Some(NEVER) => return false,
            // As `rest` does: it may get no core at the end of its sleep.
            Some(until) if until > now => (times.word_if_asleep(until), false),
            _ => (if_stuck(times), true),
        };
        // If this fails, the owner is back, or a peer was called at once.
        self.watch.change(NEVER, want, self.set_alarm());
        may_be_stuck
    }

    /// Puts off an alarm that has gone off and that the calling thread does not answer. The alarm
    /// will go off again as [`watch_on_rarely`](Shard::watch_on_rarely) says. The caller is not the
    /// owner, and has read `now` after the alarm went off. Returns `false` if another thread has
    /// set the alarm meanwhile.
    ///
    /// It makes no difference whether the owner is awake.
    pub fn put_off(&self, now: u64, looks: u32) -> bool {
        let (Some(word), Some(times)) = (self.gone_off(now), self.watch.times) else {
            return false;
        };
        let later = times.word_put_off(now, looks);
        self.watch.change(word, later, self.set_alarm())
    }

    /// Calls a peer at once, whatever the alarm is set to. The owner calls this if it will not come
    /// back for a while; another thread, if it does not know what the alarm is set to.
    pub fn call(&self) {
        if self.watch.times.is_some() {
            self.watch.word.swap(AT_ONCE, Ordering::AcqRel);
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
