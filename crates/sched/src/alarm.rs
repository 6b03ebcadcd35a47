//! The alarm word: when a peer looks after a worker that does not come back to its loop.
//!
//! The worker, the *owner*, has an *alarm*: a timer of the operating system that wakes another
//! thread. While the owner is awake the alarm is always set, to some part of a ms from now. A
//! healthy owner puts the alarm off by its heartbeat ([`beat`](Alarm::beat)). If the owner is
//! stuck, the alarm goes off. The thread that is woken *takes* the alarm, takes the timers that are
//! late, and sets the alarm again. That is a *rescue*.
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
//! timers order the published deadlines and the word in the same way. See "The alarm" in
//! `PROTOCOLS.md`.
//!
//! No single step changes both the word and the alarm. So a thread that has changed the word sets
//! the alarm, and reads the word again, until both agree. If two threads do this at once, the one
//! that sets the alarm last reads the word after that.

use tourbillon_sync::{AtomicU64, Ordering, fence};

use crate::{NEVER, Parker};

/// The largest [`Times::soon`], in ns.
const SOON: u64 = 200_000;

/// The times of an alarm, in ns, which follow from the latency. The latency is the bound of what
/// an owner owes: three quarters until a peer is called, and one quarter for the peer to come.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// How far ahead an alarm is set at most: by an owner that is awake, and by a peer that watches
    /// a stuck owner. Sockets, and all work without a deadline, wait for this long.
    ahead: u64,
    /// A heartbeat pushes off an alarm that is nearer than this.
    margin: u64,
    /// How near a peer that watches a stuck owner sets the alarm at most. It is also by how much
    /// such an alarm may be later than a deadline: a thread that arms a timer then leaves it so.
    soon: u64,
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

/// The word of an owner that has no alarm at present. It is below all words to which the alarm may
/// be lowered.
const OFF: u64 = 0;

/// The word of an alarm that calls a peer at once: a moment that has passed.
const AT_ONCE: u64 = STANDS;

/// The lowest bit of the word: the alarm *stands*, whatever the deadlines are. The alarm of a
/// healthy owner does, so the owner need not set it for each near timer. Without the bit the alarm
/// *follows* the deadlines: a thread that arms an earlier timer makes it earlier. The alarm of a
/// stuck owner does, so near timers are rescued in time.
const STANDS: u64 = 1;

/// Returns the word of an alarm that stands at the moment `at`, or just after it. [`NEVER`] is such
/// a word.
#[inline]
fn stands(at: u64) -> u64 {
    at.min(NEVER) | STANDS
}

/// Returns the word of an alarm at the moment `at`, or just before it, that follows the deadlines.
#[inline]
fn follows(at: u64) -> u64 {
    // Not `OFF`, which would end the watch.
    at.clamp(STANDS + 1, NEVER) & !STANDS
}

/// The moment until which a worker, the *owner*, may stay away from its loop.
///
/// Threads change it by the methods below. They pass `set`, which sets the alarm of the operating
/// system to a moment in ns; [`NEVER`] unsets it. A method may call `set` several times, or not at
/// all. All moments are on one clock, which `set` uses, too.
///
/// ```
/// use std::cell::Cell;
/// use tourbillon_sched::{Alarm, NEVER, Parker};
///
/// let (alarm, parker, system) = (Alarm::new(1_000_000), Parker::new(), Cell::new(NEVER));
/// let set = |at| system.set(at);
/// // The owner is in its loop. If it does not come back, a peer is called before 1 ms has passed.
/// alarm.beat(0, set);
/// assert!(system.get() < 1_000_000);
/// // It does not come back, and the alarm goes off. The peer looks after it, and sets the alarm
/// // to its next deadline. (A word has a bit that is no part of the moment.)
/// let now = system.get();
/// assert!(alarm.take(now, set));
/// assert!(alarm.watch_on(now, &parker, || now + 300_000, set), "the owner is awake");
/// assert_eq!(system.get() | 1, now + 300_000);
/// ```
#[derive(Debug)]
pub struct Alarm {
    /// The moment to which the alarm is set, in ns; [`NEVER`] if it is not set; or [`OFF`].
    word: AtomicU64,
    /// `None` if there is never an alarm.
    times: Option<Times>,
}

impl Times {
    /// Returns the word for an owner that is well at `now`.
    #[inline]
    fn word_if_well(&self, now: u64) -> u64 {
        stands(now.saturating_add(self.ahead))
    }

    /// Returns the word for an owner that sleeps until `until`. An owner that wakes at that moment,
    /// or a little earlier or later, finds an alarm that it need not set.
    #[inline]
    fn word_if_asleep(&self, until: u64) -> u64 {
        stands(until.saturating_add(self.ahead - self.margin / 2))
    }

    /// Returns the word for an owner that may be stuck at `now`: its next deadline, within limits.
    #[inline]
    fn word_if_stuck(&self, now: u64, deadline: u64) -> u64 {
        let (soon, ahead) = (
            now.saturating_add(self.soon),
            now.saturating_add(self.ahead),
        );
        follows(deadline.clamp(soon, ahead))
    }

    /// Returns the word for an alarm that is put off by `looks` looks, whatever the deadlines are.
    #[inline]
    fn word_put_off(&self, now: u64, looks: u32) -> u64 {
        let after = self.ahead.saturating_mul(u64::from(looks)).max(self.soon);
        stands(now.saturating_add(after))
    }
}

impl Alarm {
    /// Creates the word of an owner that never has an alarm.
    pub fn off() -> Self {
        Self {
            word: AtomicU64::new(OFF),
            times: None,
        }
    }

    /// Creates the word of an owner whose alarm is not set yet. A peer is with an owner that does
    /// not return to its loop within about `latency`, in ns, which is less than [`NEVER`].
    pub fn new(latency: u64) -> Self {
        Self {
            word: AtomicU64::new(NEVER),
            times: Some(Times::of(latency.min(NEVER - 1))),
        }
    }

    /// Creates the word of an owner that has no alarm until the first [call](Alarm::call).
    pub fn when_called(latency: u64) -> Self {
        Self {
            word: AtomicU64::new(OFF),
            times: Some(Times::of(latency.min(NEVER - 1))),
        }
    }

    /// Returns the times, or `None` if there is no alarm at present.
    #[inline]
    fn times_if_on(&self) -> Option<&Times> {
        if self.is_off() {
            return None;
        }
        self.times.as_ref()
    }

    /// Returns whether there is no alarm at present.
    #[inline]
    fn is_off(&self) -> bool {
        self.word.load(Ordering::Relaxed) == OFF
    }

    /// Lowers an alarm that follows the deadlines to `deadline`, unless it is set to no later than
    /// soon after that.
    #[inline]
    pub fn lower(&self, deadline: u64, set: impl Fn(u64)) {
        let word = self.word.load(Ordering::Relaxed);
        // Usually the alarm stands. `OFF` is below all deadlines.
        if word & STANDS == 0 && word > deadline {
            self.lower_late(word, deadline, set);
        }
    }

    /// Slow path of [`lower`](Alarm::lower): the alarm is later than the deadline.
    #[cold]
    fn lower_late(&self, word: u64, deadline: u64, set: impl Fn(u64)) {
        let slack = self.times.map_or(0, |times| times.soon);
        let at = follows(deadline);
        // If the alarm is taken or pushed off meanwhile, it is set earlier than it need be.
        if word > deadline.saturating_add(slack) && self.word.fetch_min(at, Ordering::AcqRel) > at {
            self.apply(set);
        }
    }

    /// Reports that the owner is well at `now`, in ns, and pushes its alarm off if it is near. This
    /// is the owner's heartbeat. The owner calls it whenever it is awake: after it has slept,
    /// before it runs anything else, and then each time that it is in its loop. Usually a call
    /// costs a fence and some loads.
    pub fn beat(&self, now: u64, set: impl Fn(u64)) {
        if self.times.is_none() {
            return;
        }
        fence(Ordering::SeqCst);
        // Behind the fence: another thread may have made the first call meanwhile.
        let Some(times) = self.times_if_on() else {
            return;
        };
        let want = times.word_if_well(now);
        let word = self.word.load(Ordering::Acquire);
        // The alarm is near, or later than it should be, or was taken (`NEVER`), or a peer watches.
        if word < now.saturating_add(times.margin) || word > want || word & STANDS == 0 {
            self.set(want, set);
        }
    }

    /// Pushes the alarm off for the sleep of the owner, which has announced that it sleeps until
    /// `until`. The alarm goes off after that: the system may run other threads in place of the
    /// owner. An owner that will be awake before the present alarm goes off need not call this: at
    /// worst a peer is woken in vain.
    pub fn rest(&self, until: u64, set: impl Fn(u64)) {
        let Some(times) = self.times_if_on() else {
            return;
        };
        let word = self.word.load(Ordering::Relaxed);
        // The alarm stays if the owner, when it wakes in time, would leave it, too.
        let near = until.saturating_add(times.margin);
        let stays = (near..=times.word_if_well(until)).contains(&word);
        if word & STANDS == 0 || !stays {
            self.set(times.word_if_asleep(until), set);
        }
    }

    /// Returns when the alarm goes off, in ns, or [`NEVER`] if it is not set. A hint.
    pub fn at(&self) -> u64 {
        match self.word.load(Ordering::Relaxed) {
            OFF => NEVER,
            at => at,
        }
    }

    /// Returns whether a peer watches the owner: the alarm follows the deadlines. A hint.
    #[inline]
    pub fn is_watched(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word != OFF && word & STANDS == 0
    }

    /// Takes an alarm that has gone off. The calling thread is not the owner, and has read `now`
    /// after the alarm woke it. If this returns `true`, the caller looks after the owner: it takes
    /// what is due, then calls [`watch_on`](Alarm::watch_on), and only then runs anything.
    #[must_use]
    pub fn take(&self, now: u64, set: impl Fn(u64)) -> bool {
        let take = |at| {
            let word = &self.word;
            word.compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Relaxed)
        };
        let taken = self
            .gone_off(now, set)
            .is_some_and(|word| take(word).is_ok());
        // The caller now reads whether the owner is awake.
        fence(Ordering::SeqCst);
        taken
    }

    /// Returns the word of an alarm that has gone off at `now`.
    fn gone_off(&self, now: u64, set: impl Fn(u64)) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        if word == OFF || word == NEVER {
            return None;
        }
        if word > now {
            // The alarm was set again since it went off. It may have gone off for this very moment,
            // by a clock that is a little ahead. So it is set once more, and is not lost.
            self.apply(set);
            return None;
        }
        Some(word)
    }

    /// Sets the alarm again that the calling thread has taken. Returns whether the owner may be
    /// stuck: it does not sleep, or it should have woken by now and has no core.
    ///
    /// The alarm goes off at the next `deadline`, but soon at the earliest, and after three
    /// quarters of the latency at the latest. So a timer that another thread arms at the same
    /// moment is late by no more than that, whichever of the two threads is first. If the owner
    /// sleeps until later than `now`, the alarm goes off after the end of its sleep.
    pub fn watch_on(
        &self,
        now: u64,
        parker: &Parker,
        deadline: impl FnOnce() -> u64,
        set: impl Fn(u64),
    ) -> bool {
        let stuck = |times: Times| times.word_if_stuck(now, deadline());
        self.watch_again(now, parker, stuck, set)
    }

    /// Like [`watch_on`](Alarm::watch_on), but whatever the deadlines are: sets the alarm of an
    /// owner that may be stuck to `looks` times the longest time to the next visit from `now`, or
    /// as near as possible if `looks` is zero.
    ///
    /// This is for a thread that looks at owners rarely, since each look takes a core from one of
    /// them, or that looks again before it takes anything.
    pub fn watch_on_rarely(
        &self,
        now: u64,
        looks: u32,
        parker: &Parker,
        set: impl Fn(u64),
    ) -> bool {
        self.watch_again(now, parker, |times| times.word_put_off(now, looks), set)
    }

    /// Sets the alarm that the calling thread has taken: to `if_stuck` if the owner may be stuck,
    /// which is returned.
    fn watch_again(
        &self,
        now: u64,
        parker: &Parker,
        if_stuck: impl FnOnce(Times) -> u64,
        set: impl Fn(u64),
    ) -> bool {
        let Some(times) = self.times else {
            return false;
        };
        let (want, may_be_stuck) = match parker.parked_until() {
            // Whoever wakes the owner makes it set the alarm itself.
            Some(NEVER) => return false,
            // As `rest` does: it may get no core at the end of its sleep.
            Some(until) if until > now => (times.word_if_asleep(until), false),
            _ => (if_stuck(times), true),
        };
        // If this fails, the owner is back, or a peer was called at once.
        self.change(NEVER, want, set);
        may_be_stuck
    }

    /// Puts off an alarm that has gone off and that the calling thread does not answer. The alarm
    /// will go off again as [`watch_on_rarely`](Alarm::watch_on_rarely) says. The caller is not the
    /// owner, and has read `now` after the alarm went off. Returns `false` if another thread has
    /// set the alarm meanwhile.
    ///
    /// It makes no difference whether the owner is awake.
    pub fn put_off(&self, now: u64, looks: u32, set: impl Fn(u64)) -> bool {
        let (Some(word), Some(times)) = (self.gone_off(now, &set), self.times) else {
            return false;
        };
        let later = times.word_put_off(now, looks);
        self.change(word, later, set)
    }

    /// Calls a peer at once, whatever the alarm is set to. The owner calls this if it will not come
    /// back for a while; another thread, if it does not know what the alarm is set to.
    pub fn call(&self, set: impl Fn(u64)) {
        if self.times.is_some() {
            self.word.swap(AT_ONCE, Ordering::AcqRel);
            self.apply(set);
        }
    }

    /// Switches the alarm off until the next [call](Alarm::call): it is not set, and no other
    /// operation sets it. For the owner. A thread that has taken the alarm before this may still
    /// look after the owner.
    pub fn dismiss(&self, set: impl Fn(u64)) {
        self.set(OFF, set);
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

    /// Changes the word from `from` to `to`, and sets the alarm. Returns `false`, and does nothing,
    /// if another thread has changed the word.
    fn change(&self, from: u64, to: u64, set: impl Fn(u64)) -> bool {
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
    fn set(&self, at: u64, set: impl Fn(u64)) {
        if self.word.swap(at, Ordering::AcqRel) != at {
            self.apply(set);
        }
    }
}
