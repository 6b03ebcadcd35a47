//! The flight recorder: what the threads of a runtime did last, to find out why a timer was late.
//!
//! Each worker and helper writes into a [`Ring`] of its own; all other threads share one. See
//! docs/internals/flight-recorder.md.
//!
//! - `event`: the events.
//! - `words`: how they are written, in 16 bytes each.
//! - `note`: where a worker notes them.
//! - `copy`: copies of all rings, on demand or automatically.

pub(crate) mod copy;
pub(crate) mod event;
pub(crate) mod note;
pub(crate) mod words;

use std::{fmt, sync::Arc, time::Duration};

use tourbillon_sched::Ring;

use crate::{
    engine::{
        config::Config,
        local,
        recorder::words::{Words, armed, moved},
        shared::Shared,
        telemetry::{polls::Polls, traces::Traces},
    },
    sys::sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    util::lock::lock,
};

/// In light mode, only what took this long is recorded, in ns.
pub(crate) const NOTED: u64 = 200_000;

/// In [light](Recording::Light) recording, what took less than this is not recorded.
pub const LIGHT_THRESHOLD: Duration = Duration::from_nanos(NOTED);

/// The threshold of a recorder that is off, in ns.
const NEVER_NOTED: u64 = u64::MAX;

/// How much a runtime's flight recorder records. [`FlightRecorder::set_recording`] changes it at
/// any time.
///
/// [`FlightRecorder::set_recording`]: crate::flight::FlightRecorder::set_recording
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Recording {
    /// Nothing.
    Off,
    /// What took 200 µs or more: late batches of timers and each timer of them, jobs that kept
    /// their worker, rescues, stalls, steps of the clock. Of the timers that were taken in time and
    /// then queued for long, one in 16.
    #[default]
    Light,
    /// Everything: each timer that is armed, taken and run, or moved by another thread than its
    /// worker; each job, sleep, wake-up and theft. A job takes one more reading of the clock.
    Full,
}

impl Recording {
    /// Returns from which time on something is recorded, in ns.
    fn noted(self) -> u64 {
        match self {
            Recording::Off => NEVER_NOTED,
            Recording::Light => NOTED,
            Recording::Full => 0,
        }
    }

    fn from_number(number: u8) -> Self {
        [Self::Off, Self::Light, Self::Full]
            .into_iter()
            .find(|it| *it as u8 == number)
            .unwrap_or_default()
    }
}

/// Writes the name: `off`, `light` or `full`.
impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recording::Off => "off",
            Recording::Light => "light",
            Recording::Full => "full",
        })
    }
}

/// The part of a worker or helper in the recorder.
#[derive(Debug)]
pub(crate) struct Track {
    ring: Arc<Ring>,
    /// What takes less than this is not recorded, in ns.
    noted: AtomicU64,
    /// Whether each timer is looked at when it runs: timers are late, or everything is recorded.
    looks: AtomicBool,
    /// Whether the worker is to copy the rings when it is back in its loop.
    copies: AtomicBool,
    /// Whether each job is looked at before it runs: everything is recorded, polls or jobs are
    /// timed, or polls are traced.
    looks_at_jobs: AtomicBool,
    /// Until when the worker reads the clock before each job, in ns, and once at least. Zero if it
    /// does not. Threads that meet may lose a setting: jobs are then timed by turns.
    times_until: AtomicU64,
    pub(crate) polls: Polls,
    /// Whether some task is to be polled while its wakers are traced.
    traces: AtomicBool,
}

impl Track {
    /// Returns whether what took `ns` is recorded.
    #[inline]
    pub(crate) fn notes(&self, ns: u64) -> bool {
        ns >= self.noted.load(Relaxed)
    }

    /// Returns whether everything is recorded.
    #[inline]
    pub(crate) fn notes_all(&self) -> bool {
        self.notes(0)
    }

    /// Returns whether each timer is looked at when it runs.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.looks.load(Relaxed)
    }

    /// Returns whether each job is looked at before it runs. (Of callbacks, those that
    /// [`looks`](Track::looks) selects.)
    #[inline]
    pub(crate) fn looks_at_jobs(&self) -> bool {
        self.looks_at_jobs.load(Relaxed)
    }

    pub(super) fn set_looks(&self, looks: bool) {
        self.looks.store(looks || self.times_jobs(), Relaxed);
    }

    /// Returns whether the worker reads the clock before each job.
    pub(crate) fn times_jobs(&self) -> bool {
        self.times_until.load(Relaxed) > 0
    }

    /// Has the worker read the clock before its next job, and before each further one until
    /// `until`, in ns.
    pub(crate) fn time_jobs(&self, until: u64) {
        self.times_until.fetch_max(until.max(1), Relaxed);
        self.set_looks(true);
        self.look_at_jobs();
    }

    /// Ends the timing of jobs, if it was to last until `now`, in ns, at most.
    pub(crate) fn end_timing(&self, now: u64) {
        if self.times_until.load(Relaxed) <= now {
            self.times_until.store(0, Relaxed);
            self.set_looks(self.notes_all());
            self.look_at_jobs();
        }
    }

    /// Has the worker copy the rings when it is back in its loop.
    fn want_copy(&self) {
        self.copies.store(true, Relaxed);
    }

    /// Returns whether the worker is to copy the rings now.
    #[inline]
    fn wants_copy(&self) -> bool {
        self.copies.load(Relaxed) && self.copies.swap(false, Relaxed)
    }

    /// Creates the track of a thread that records nothing before it is [set](Track::set).
    fn new(ring: Arc<Ring>) -> Self {
        Self {
            ring,
            noted: AtomicU64::new(NEVER_NOTED),
            looks: AtomicBool::default(),
            copies: AtomicBool::default(),
            looks_at_jobs: AtomicBool::default(),
            times_until: AtomicU64::default(),
            polls: Polls::default(),
            traces: AtomicBool::default(),
        }
    }

    /// Creates the track of an owner that is no thread, and never records anything.
    pub(crate) fn off() -> Self {
        Self::new(Arc::new(Ring::new(0)))
    }

    fn set(&self, recording: Recording) {
        self.noted.store(recording.noted(), Relaxed);
        self.set_looks(recording == Recording::Full);
        self.look_at_jobs();
    }

    /// Sets whether polls are timed.
    pub(crate) fn time_polls(&self, are_timed: bool) {
        self.polls.set_timed(are_timed);
        self.look_at_jobs();
    }

    /// Returns whether some task is to be polled while its wakers are traced.
    pub(crate) fn traces(&self) -> bool {
        self.traces.load(Relaxed)
    }

    /// Sets whether some task is to be polled while its wakers are traced.
    pub(crate) fn trace(&self, traces: bool) {
        self.traces.store(traces, Relaxed);
        self.look_at_jobs();
    }

    /// Sets whether each job is looked at.
    pub(super) fn look_at_jobs(&self) {
        let is_timed = self.polls.are_timed() || self.times_jobs();
        let looks = self.notes_all() || is_timed || self.traces();
        self.looks_at_jobs.store(looks, Relaxed);
    }

    /// Writes an event and its details.
    ///
    /// # Safety
    ///
    /// The calling thread is the worker or helper of this track.
    pub(super) unsafe fn write(&self, events: impl IntoIterator<Item = Words>) {
        for event in events {
            // SAFETY: only that thread writes to this ring. A current-thread runtime changes its
            // thread under a mutex.
            unsafe { self.ring.push(event) };
        }
    }
}

/// The flight recorder of a runtime.
#[derive(Debug)]
pub(crate) struct Flight {
    recording: AtomicU8,
    /// How many callers have polls timed.
    pub(crate) times_polls: AtomicUsize,
    pub(crate) traces: Traces,
    /// How many events each ring keeps.
    capacity: usize,
    /// A timer that is later than this makes a copy, in ns.
    pub(super) late_threshold: u64,
    workers: Box<[Arc<Ring>]>,
    /// The rings of the helpers that run, and of some that ended. By the number of the helper.
    helpers: Mutex<Vec<(usize, Arc<Ring>)>>,
    outside: Outside,
    pub(super) kept: copy::Kept,
    /// When a warning of a late timer was emitted last, in ns by the runtime's clock.
    #[cfg(feature = "tracing")]
    pub(super) warned: AtomicU64,
}

/// The ring of all threads that are no workers.
#[derive(Debug)]
struct Outside {
    ring: Ring,
    /// Set while a thread writes.
    writes: AtomicBool,
}

/// How many rings of helpers that ended are kept, with what these helpers did last.
const ENDED_HELPERS: usize = 4;

impl Flight {
    pub(crate) fn new(config: &Config, workers: usize) -> Self {
        let capacity = config.recorded_events;
        // A rescue must not wait for memory. Where none happens, the rings are made when they are
        // needed: most current-thread runtimes live for a few ms and record nothing.
        let ring = || match config.is_current_thread() {
            true => Ring::new(capacity),
            false => Ring::new(capacity).reserve(),
        };
        Self {
            recording: AtomicU8::new(config.recording as u8),
            times_polls: AtomicUsize::new(0),
            traces: Traces::default(),
            capacity,
            late_threshold: config.late_threshold,
            workers: (0..workers).map(|_| Arc::new(ring())).collect(),
            helpers: Mutex::default(),
            outside: Outside {
                ring: ring(),
                writes: AtomicBool::new(false),
            },
            kept: copy::Kept::default(),
            #[cfg(feature = "tracing")]
            warned: AtomicU64::new(0),
        }
    }

    pub(crate) fn recording(&self) -> Recording {
        Recording::from_number(self.recording.load(Relaxed))
    }

    /// Returns whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.recording() != Recording::Off
    }

    /// Returns the track of a new worker.
    pub(crate) fn track_of_worker(&self, index: usize) -> Track {
        self.track(self.workers[index].clone())
    }

    /// Returns the track of a new helper.
    pub(crate) fn track_of_helper(&self, number: usize) -> Track {
        let mut helpers = lock(&self.helpers);
        // Drop the oldest ring of those whose helper has ended, if there are enough others.
        let is_free = |(_, ring): &(usize, Arc<Ring>)| Arc::strong_count(ring) == 1;
        let ended = helpers.iter().filter(|it| is_free(it)).count();
        let oldest = helpers.iter().position(is_free);
        if let Some(oldest) = oldest.filter(|_| ended > ENDED_HELPERS) {
            helpers.remove(oldest);
        }
        let ring = Arc::new(Ring::new(self.capacity).reserve());
        helpers.push((number, ring.clone()));
        self.track(ring)
    }

    fn track(&self, ring: Arc<Ring>) -> Track {
        let track = Track::new(ring);
        track.set(self.recording());
        track.time_polls(self.times_polls.load(Relaxed) > 0);
        track
    }
}

impl Shared {
    /// Sets what all threads of the runtime record from now on.
    pub(crate) fn set_recording(&self, recording: Recording) {
        // First the word by which a new helper begins, and then the tracks of those that run.
        self.flight.recording.store(recording as u8, Relaxed);
        self.each_core(|core| core.track.set(recording));
    }

    /// Records an event of the calling thread: in its own ring if it is a worker of this runtime,
    /// otherwise in the ring that all others share. Two of those that meet lose an event.
    #[cold]
    pub(crate) fn record(&self, events: impl IntoIterator<Item = Words>) {
        local::with_local_of(self, |local| match local {
            // SAFETY: the calling thread is the worker of `local`.
            Some(local) => unsafe { local.shard.owner().track.write(events) },
            None => self.flight.outside.write(events),
        });
    }

    /// Records that the calling thread arms a timer that is due at `deadline`, in ns.
    #[cold]
    pub(crate) fn record_armed(&self, deadline: u64) {
        if !self.clock.was_paused() {
            self.record([armed(self.clock.real(), deadline)]);
        }
    }

    /// Records that the calling thread moves a timer of another worker.
    #[cold]
    pub(crate) fn record_moved(&self) {
        if !self.clock.was_paused() {
            self.record([moved(self.clock.real())]);
        }
    }
}

impl Outside {
    fn write(&self, events: impl IntoIterator<Item = Words>) {
        // Do not wait: the other thread may have lost its core meanwhile.
        if self.writes.swap(true, Acquire) {
            return;
        }
        for event in events {
            // SAFETY: the flag admits one thread at a time, and orders it behind the last one.
            unsafe { self.ring.push(event) };
        }
        self.writes.store(false, Release);
    }
}

/// How many events a ring keeps by default: 1 MiB for each worker, which becomes resident as it
/// fills.
pub(crate) const DEFAULT_EVENTS: usize = (1 << 16) - 1;

/// From which lateness on the rings are copied automatically, by default.
pub(crate) const DEFAULT_LATE: Duration = Duration::from_millis(100);
