//! What a worker notes for the recorder. Each method that is not cold compares one number with the
//! worker's threshold, and no more while the recorder is off.

use std::num::NonZeroU64;

use tourbillon_shards::{Due, NEVER, Tolerance, TypeName};

#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace;
use crate::{
    engine::{
        core::{Core, WorkerShard},
        recorder::{
            NOTED, Track,
            event::{Lost, Rescue, WakeReason},
            words::{self, Words},
        },
        watchdog::{report, seen::InLoop},
        worker::Worker,
    },
    metrics::{activity::JobRef, spawned::Spawned},
    sys::{sync::atomic::Ordering, waits::Waits},
};

/// The least time between readings of the kernel's accounts before sleeps: in ns, and as a multiple
/// of what a reading costs.
const FRESH: u64 = 100_000_000;
const FRESH_COSTS: u64 = 1_000;
/// The shortest stretch of time for which the accounts are read: in ns, and as such a multiple.
const ACCOUNTED: u64 = 1_000_000;
const ACCOUNTED_COSTS: u64 = 100;
/// The lowest bit of the moment at which a batch is taken, in ns. It is cleared so that
/// [`Sleep::sample`](tourbillon_shards::Sleep::sample) selects every sleep of the batch.
const SAMPLED: u64 = 1 << 10;

/// What a worker remembers for the recorder. Moments are in ns by the real clock.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Since when each batch has left due timers behind, or zero if the last one did not.
    left: u64,
    /// Up to where jobs were recorded.
    recorded: InLoop,
    /// When the last sleep began, was to end, and ended.
    parked: u64,
    until: u64,
    woken: u64,
    /// The kernel's accounts as they were read last, and when. Zero if they never were.
    waits: Waits,
    read: u64,
}

/// Returns from when on a timer counts as late at `now`: from its deadline, or from the end of a
/// sleep by which the owner of its shard deferred it.
#[inline]
pub(crate) fn due_from(shard: &WorkerShard, deadline: u64, tolerance: Tolerance, now: u64) -> u64 {
    let deferred = shard.owner().deferred_to.load(Ordering::Relaxed);
    match tolerance.is_exact() && deferred <= now {
        true => deadline.max(deferred),
        false => deadline,
    }
}

/// A timer that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) deadline: u64,
    pub(crate) tolerance: Tolerance,
    /// From when on it counts as late, but for its tolerance: see [`due_from`].
    pub(crate) due_from: u64,
    /// The worker that owns it.
    pub(crate) home: usize,
    pub(crate) job: Option<JobRef>,
    /// The span that armed it. `None` for a sleep.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "no event has it"))]
    pub(crate) origin: Option<NonZeroU64>,
}

impl Notes {
    /// Notes that the worker goes to sleep at `now` until `until`, unless something wakes it.
    pub(crate) fn parks(&mut self, core: &Core, now: u64, until: u64) {
        (self.parked, self.until) = (now, until);
        // By the difference to this reading, it is known whether other threads had the core.
        let fresh = FRESH.max(FRESH_COSTS * self.waits.cost());
        if self.accounts(until.saturating_sub(now)) && now.saturating_sub(self.read) >= fresh {
            self.read_accounts(core, now);
        }
        if core.track.notes_all() {
            // SAFETY: a worker calls this with its own core.
            unsafe { core.track.write([words::parked(now, until)]) };
        }
    }

    #[cold]
    fn read_accounts(&mut self, core: &Core, now: u64) {
        if core.shared.flight.is_on() && !core.shared.clock.was_paused() {
            (self.waits, self.read) = (Waits::now(), now);
        }
    }

    /// Returns whether a stretch of time is so long that the accounts are read for it: a reading
    /// takes at most 1 % of it.
    fn accounts(&self, ns: u64) -> bool {
        ns >= ACCOUNTED.max(ACCOUNTED_COSTS * self.waits.cost())
    }

    /// Returns what the worker has lost since the last reading, at most `most` ns. Nothing is known
    /// of short stretches.
    fn lost(&mut self, now: u64, most: u64) -> Lost {
        if !self.accounts(most) {
            return Lost::default();
        }
        let waits = Waits::now();
        let before = std::mem::replace(&mut self.waits, waits);
        if std::mem::replace(&mut self.read, now) == 0 {
            // There was no reading to compare with.
            return Lost::default();
        }
        let [preempted, stolen, throttled] = waits.since(before);
        let lost = Lost {
            preempted,
            stolen,
            throttled,
        };
        lost.split(most).0
    }
}

impl Running {
    /// Returns what is known of a due callback, unless it was cancelled.
    pub(crate) fn of(due: &Due<Core>, now: u64) -> Option<Self> {
        let (deadline, tolerance) = (due.deadline()?, due.tolerance());
        Some(Self {
            deadline,
            tolerance,
            due_from: due_from(due.home(), deadline, tolerance, now),
            home: due.home().owner().index,
            job: Some(JobRef::new(due.type_name(), None)),
            origin: due.origin(),
        })
    }

    /// Returns how late the timer is at `now`, beyond its tolerance.
    pub(crate) fn late_beyond(&self, now: u64) -> u64 {
        now.saturating_sub(self.due_from)
            .saturating_sub(self.tolerance.ns())
    }

    /// Emits a warning if the timer was very late, and there was no other one for a second. A panic
    /// of the subscriber counts for `core`.
    #[cfg(feature = "tracing")]
    pub(crate) fn warn_if_late(&self, core: &Core, now: u64) {
        if core.shared.flight.warns_of(self.late_beyond(now), now) {
            core.contain(|| trace::late(self, now));
        }
    }

    /// Returns the events of a run at `now`, or `None` if it need not be recorded on `track`.
    /// `taken` is when the timer was taken from its store.
    pub(crate) fn events(
        self,
        track: &Track,
        now: u64,
        taken: u64,
    ) -> Option<impl Iterator<Item = Words>> {
        if !track.notes(self.late_beyond(now)) {
            return None;
        }
        let late = now.saturating_sub(self.deadline);
        // The recorded moment of taking is rounded, and may come out before the deadline.
        let taken = taken.clamp(self.deadline.min(now), now);
        let details = [
            words::ran(now, late),
            words::from(taken, self.home, self.tolerance.ns()),
        ];
        Some(details.into_iter().chain(words::named(self.job)))
    }
}

impl Core {
    /// Records that the calling thread wakes this worker.
    #[inline]
    pub(crate) fn record_woke(&self, why: WakeReason) {
        if self.track.notes_all() {
            let now = self.shared.clock.real();
            self.shared.record([words::woke(now, self.index, why)]);
        }
    }

    /// Counts and records that the calling thread, which is not this worker, moved a timer.
    #[inline(never)]
    pub(crate) fn moved_by_another(&self) {
        if self.track.notes_all() {
            self.shared.record_moved();
        }
        self.count_for_another(|counters| &counters.refreshed);
    }
}

impl Worker<'_> {
    /// Writes events to the ring of this worker.
    fn write(&self, events: impl IntoIterator<Item = Words>) {
        // SAFETY: the thread of a `Worker` is the worker of its core.
        unsafe { self.core.track.write(events) };
    }

    /// Returns the moment at which due timers are taken, and whether they may be late. `next` is
    /// the first deadline of the shard. If they may be late, the moment is such that each of them
    /// is looked at when it runs.
    #[inline]
    pub(crate) fn moment_of_taking(&self, now: u64, next: u64) -> (u64, bool) {
        let due_from = due_from(&self.local.shard, next, Tolerance::EXACT, now);
        if self.core.track.notes(now.saturating_sub(due_from)) {
            return (now & !SAMPLED, true);
        }
        (now, false)
    }

    /// Notes that timers were taken at `now`: those in `due` from index `first` on. `may_be_late`
    /// is what [`moment_of_taking`](Worker::moment_of_taking) returned, and `more` tells whether
    /// due timers were left behind.
    #[inline]
    pub(crate) fn note_taken(&mut self, first: usize, now: u64, may_be_late: bool, more: bool) {
        self.note_batch(first, now, may_be_late);
        self.notes.left = match (more, self.notes.left) {
            (false, _) => 0,
            (true, 0) => now,
            (true, since) => since,
        };
    }

    /// Like [`note_taken`](Worker::note_taken), for timers of another shard: those that are left
    /// there do not wait for this worker alone.
    #[inline]
    pub(crate) fn note_batch(&mut self, first: usize, now: u64, may_be_late: bool) {
        if may_be_late || self.core.track.looks() {
            self.look_at_taken(first, now);
        }
    }

    #[cold]
    fn look_at_taken(&mut self, first: usize, now: u64) {
        let Some(deadline) = self.due.get(first).and_then(Due::deadline) else {
            return;
        };
        let track = &self.core.track;
        let due_from = due_from(
            &self.local.shard,
            deadline,
            self.due[first].tolerance(),
            now,
        );
        if track.notes(now.saturating_sub(due_from)) {
            self.record_taken(first, now, now.saturating_sub(deadline), None);
        } else if !track.notes_all() && self.local.deque.is_empty() {
            // Timers are in time again. Those that are still queued are looked at.
            track.set_looks(false);
        }
    }

    /// Notes that timers of a stuck peer were taken at `now`: those in `due` from index `first` on.
    /// This worker came to the peer at `came`.
    pub(crate) fn note_taken_from(&mut self, peer: &Core, first: usize, now: u64, came: u64) {
        if let Some(deadline) = self.due.get(first).and_then(Due::deadline) {
            let late = now.saturating_sub(deadline);
            if self.core.track.notes(late) {
                // Their sleeps ask the track of their owner.
                peer.track.set_looks(true);
                self.record_taken(first, now, late, Some((peer, came)));
            }
        }
    }

    #[cold]
    fn record_taken(&mut self, first: usize, now: u64, late: u64, rescue: Option<(&Core, u64)>) {
        let track = &self.core.track;
        // A timer is not late within its tolerance, nor while its owner sleeps on because of the
        // budget.
        let timer = &self.due[first];
        let due_from = due_from(timer.home(), now - late, timer.tolerance(), now);
        let tolerance = timer.tolerance().ns();
        let late_beyond = now.saturating_sub(due_from).saturating_sub(tolerance);
        if self.shared.clock.was_paused() || !track.notes(late_beyond) {
            return;
        }
        track.set_looks(true);
        // The jobs that ran before: this batch waited for them, and the worker's turn goes on.
        let present = InLoop::at(now, self.tick);
        let (_, took) = present.since(self.in_loop);
        if rescue.is_none() && took >= NOTED {
            self.record_turn(self.in_loop, present);
        }
        if rescue.is_none() {
            self.record_wait(now, late);
        }
        let left = Some(self.notes.left).filter(|&left| left > 0 && rescue.is_none());
        let came = rescue.map(|(peer, came)| Rescue {
            from: peer.index,
            came,
        });
        let count = (self.due.len() - first) as u64;
        let stuck_in = rescue.and_then(|(peer, _)| peer.watchdog.watch.job_ref());
        let taken = [
            words::taken(now, late, count),
            words::before(now, left, came),
        ];
        let tolerance = (tolerance > 0).then(|| words::tolerance(tolerance));
        let details = tolerance.into_iter().chain(words::named(stuck_in));
        self.write(taken.into_iter().chain(details));
        self.shared.flight.keep_if_late(self.core, late_beyond);
    }

    /// Records what the worker did without jobs before `now`, when it took a timer that is `late`:
    /// it slept, and was in its loop. Only the time after the deadline made the timer late.
    fn record_wait(&mut self, now: u64, late: u64) {
        let (woken, until) = (self.notes.woken, self.notes.until);
        let parked = self.notes.parked.min(woken);
        let due = now - late;
        // In full mode the sleep is recorded already.
        let slept = !self.core.track.notes_all() && woken > due;
        let asleep = if slept { woken - parked.max(due) } else { 0 };
        // The loop alone takes no such time: the worker had no core there.
        let in_loop = woken
            .max(self.in_loop.at)
            .max(self.notes.recorded.at)
            .max(due);
        let looped = now.saturating_sub(in_loop);
        let looped = if looped >= NOTED { looped } else { 0 };
        if !slept && looped == 0 {
            return;
        }
        let lost = self.notes.lost(now, asleep + looped);
        let (in_loop, in_sleep) = lost.split(looped);
        if slept {
            let sleep = [words::parked(parked, until), words::woken(woken, until)];
            self.write(sleep.into_iter().chain(words::lost(in_sleep)));
        }
        if looped > 0 {
            let events = [words::looped(now, looped)].into_iter();
            self.write(events.chain(words::lost(in_loop)));
        }
    }

    /// Notes that the worker is back in its loop, where it was before at `from`.
    #[inline]
    pub(crate) fn note_turn(&mut self, from: InLoop) {
        let (_, took) = self.in_loop.since(from);
        if self.core.track.notes(took) {
            self.record_turn(from, self.in_loop);
        }
    }

    /// Records the jobs that ran between `from` and `to`, except for those that are recorded
    /// already.
    #[cold]
    fn record_turn(&mut self, from: InLoop, to: InLoop) {
        let (jobs, took) = to.since(from.later(self.notes.recorded));
        // In full mode each spin comes here.
        if jobs == 0 || !self.core.track.notes(took) || self.shared.clock.was_paused() {
            return;
        }
        self.notes.recorded = to;
        // The watchdog knows the last job that has begun.
        let watch = &self.core.watchdog.watch;
        let last = words::named(
            (watch.begun() <= to.jobs)
                .then(|| watch.job_ref())
                .flatten(),
        );
        let is_long = took >= NOTED;
        let lost = is_long.then(|| words::lost(self.notes.lost(to.at, took)));
        let turn = [words::turn(to.at, took, jobs)];
        self.write(
            turn.into_iter()
                .chain(lost.into_iter().flatten())
                .chain(last),
        );
        if is_long {
            // What is still queued waited for these jobs.
            self.core.track.set_looks(true);
        }
    }

    /// Notes that a sleep is over at `now`.
    #[inline]
    pub(crate) fn note_woken(&mut self, now: u64) {
        self.notes.woken = now;
        if self.core.track.notes_all() {
            self.record_woken(now);
        }
    }

    #[cold]
    fn record_woken(&mut self, now: u64) {
        if self.shared.clock.was_paused() {
            return;
        }
        let (parked, until) = (self.notes.parked, self.notes.until);
        let late = now.saturating_sub(until.max(parked));
        let is_late = until != NEVER && late >= NOTED;
        let lost = is_late.then(|| words::lost(self.notes.lost(now, late)));
        let woken = [words::woken(now, until)].into_iter();
        self.write(woken.chain(lost.into_iter().flatten()));
    }

    /// Notes that a job begins, before it is published.
    #[inline]
    pub(crate) fn note_run(&mut self, name: &'static TypeName, spawned: Option<Spawned>) {
        if self.core.track.looks_at_jobs() {
            self.look_at_job(name, spawned);
        }
    }

    /// Times the jobs before the one that begins, and records that one, as far as that is wanted.
    #[cold]
    pub(crate) fn look_at_job(&mut self, name: &'static TypeName, spawned: Option<Spawned>) {
        let track = &self.core.track;
        if track.times_jobs() {
            // A report runs the user's hook, and the former job is over by then.
            self.core.watchdog.watch.end();
            self.time_job();
        } else {
            // Threads that met may have left the mark although nothing is timed any more.
            track.look_at_jobs();
        }
        if track.notes_all() && !self.shared.clock.was_paused() {
            let run = words::run(self.shared.clock.real(), self.tick);
            let mut job = JobRef::new(name, spawned);
            job.group = self.group_name();
            self.write([run].into_iter().chain(words::named(Some(job))));
        }
    }

    /// Times the job that is over, while another one is about to begin. If it was long, it is
    /// recorded apart from those before it.
    fn time_job(&mut self) {
        let before = self.in_loop.later(self.timed);
        self.timed = before;
        report::was_away(self.core, &mut self.timed, self.tick - 1);
        let (_, took) = self.timed.since(before);
        if self.core.track.notes(took) {
            self.record_turn(self.in_loop, before);
            self.record_turn(before, self.timed);
        }
        self.core.track.end_timing(self.timed.at);
    }

    /// Records that a timer runs that was `queued` ns ago taken from its store.
    #[cold]
    pub(crate) fn record_ran(&self, running: Running, now: u64, queued: u64) {
        let taken = now.saturating_sub(queued);
        if let Some(events) = running.events(&self.core.track, now, taken) {
            self.write(events);
        }
        let late = running.late_beyond(now);
        self.shared.flight.keep_if_late(self.core, late);
        #[cfg(feature = "tracing")]
        running.warn_if_late(self.core, now);
    }

    /// Records that jobs were stolen from a worker.
    #[cold]
    pub(crate) fn record_stole(&self, from: usize, jobs: u64) {
        self.write([words::stole(self.shared.clock.real(), from, jobs)]);
    }

    /// Keeps a copy of the rings, if a timer was very late.
    #[inline]
    pub(crate) fn keep_what_happened(&self) {
        if self.core.track.wants_copy() {
            self.shared.keep_copy();
        }
    }
}

#[cfg(test)]
#[path = "timed_tests.rs"]
mod timed_tests;
