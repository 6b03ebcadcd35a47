//! The alarm of a shard, which calls a peer if the owner is stuck. The protocol and the word are
//! [`tourbillon_sched::Alarm`].

use tourbillon_sched::Alarm;

use super::Shard;
use crate::owner::Owner;

impl<O: Owner> Shard<O> {
    /// Creates a shard whose owner is watched: if the owner does not return to its loop, peers take
    /// its due timers within about `latency`, in ns, which is less than [`NEVER`](crate::NEVER).
    /// [`Owner::alarm`] wakes a peer, and the peer calls [`take_alarm`](Shard::take_alarm).
    pub fn watched(owner: O, latency: u64) -> Self {
        Self::with_alarm(owner, Alarm::new(latency))
    }

    /// Creates a shard whose owner is watched from the first [call](Shard::call) on. Until then no
    /// alarm is set.
    pub fn watched_when_called(owner: O, latency: u64) -> Self {
        Self::with_alarm(owner, Alarm::when_called(latency))
    }

    /// Returns a function that sets the alarm of this shard.
    fn set_alarm(&self) -> impl Fn(u64) {
        |at| self.owner().alarm(at)
    }

    /// Lowers the alarm to a deadline that was published, if the alarm follows the deadlines.
    #[inline]
    pub(crate) fn lower_alarm(&self, deadline: u64) {
        self.alarm.lower(deadline, self.set_alarm());
    }

    /// Reports that the owner is well at `now`, in ns: see [`Alarm::beat`]. The owner calls this
    /// whenever it is awake. Usually a call costs a fence and some loads.
    pub fn beat(&self, now: u64) {
        self.alarm.beat(now, self.set_alarm());
    }

    /// Pushes the alarm off for the sleep of the owner, which has announced that it sleeps until
    /// `until`: see [`Alarm::rest`].
    pub fn rest(&self, until: u64) {
        self.alarm.rest(until, self.set_alarm());
    }

    /// Returns when the alarm goes off, in ns, or [`NEVER`](crate::NEVER) if it is not set. A hint.
    pub fn alarm(&self) -> u64 {
        self.alarm.at()
    }

    /// Returns whether a peer watches the owner, which is stuck or gets no core. A hint.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.alarm.is_watched()
    }

    /// Takes an alarm that has gone off: see [`Alarm::take`]. If this returns `true`, the caller
    /// [rescues](Shard::is_late) the timers of the shard: it calls [`expire`](Shard::expire), then
    /// [`watch_on`](Shard::watch_on), and only then runs anything.
    #[must_use]
    pub fn take_alarm(&self, now: u64) -> bool {
        self.alarm.take(now, self.set_alarm())
    }

    /// Returns whether a timer is due at `now` for which the owner defers no wake-up, whether the
    /// owner is awake or asleep.
    pub fn is_late(&self, now: u64) -> bool {
        self.next_wake() <= now
    }

    /// Sets the alarm again that the calling thread has taken, to the next deadline within limits.
    /// Returns whether the owner may be stuck. See [`Alarm::watch_on`].
    pub fn watch_on(&self, now: u64) -> bool {
        let deadline = || self.next_deadline();
        self.alarm
            .watch_on(now, &self.parker, deadline, self.set_alarm())
    }

    /// Like [`watch_on`](Shard::watch_on), but whatever the deadlines are: see
    /// [`Alarm::watch_on_rarely`].
    pub fn watch_on_rarely(&self, now: u64, looks: u32) -> bool {
        self.alarm
            .watch_on_rarely(now, looks, &self.parker, self.set_alarm())
    }

    /// Puts off an alarm that has gone off and that the calling thread does not answer: see
    /// [`Alarm::put_off`]. Returns `false` if another thread has set the alarm meanwhile.
    pub fn put_off(&self, now: u64, looks: u32) -> bool {
        self.alarm.put_off(now, looks, self.set_alarm())
    }

    /// Calls a peer at once, whatever the alarm is set to: see [`Alarm::call`].
    pub fn call(&self) {
        self.alarm.call(self.set_alarm());
    }

    /// Switches the alarm off until the next [call](Shard::call): see [`Alarm::dismiss`].
    pub fn dismiss(&self) {
        self.alarm.dismiss(self.set_alarm());
    }
}
