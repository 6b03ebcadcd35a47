//! The flight recorder: why a timer was late.
//!
//! Each thread of a runtime records what it did last, in a ring of fixed size:
//! [`Handle::flight_recorder`](crate::Handle::flight_recorder). A [`Snapshot`] is a copy of all
//! rings. It names the [late timers](Snapshot::late_timers), and divides the lateness of each into
//! spans with one [`Cause`] each. [`Snapshot::write_trace`] writes a file for Perfetto or Chrome's
//! trace viewer, which `tourbillon trace FILE` puts into words.
//!
//! ```
//! use std::{thread, time::Duration};
//! use tourbillon::{flight::Cause, runtime::Builder, time::sleep};
//!
//! # fn main() -> Result<(), tourbillon::BuildError> {
//! let runtime = Builder::new().worker_threads(1).build()?;
//! runtime.spawn(async { thread::sleep(Duration::from_millis(30)) });
//! runtime.block_on(runtime.spawn(sleep(Duration::from_millis(1)))).unwrap();
//! let snapshot = runtime.handle().flight_recorder().snapshot();
//! for late in snapshot.late_timers(Duration::from_millis(5)) {
//!     // Most of the time the job of the first task is the cause.
//!     let stuck = late.spans.iter().any(|span| matches!(span.cause, Cause::StuckInJob(_)));
//!     println!("{late}; behind a job: {stuck}");
//! }
//! # Ok(())
//! # }
//! ```

mod analysis;
mod cause;
mod json;
mod late;
#[cfg(feature = "inspect")]
pub(crate) mod placed;
mod timeline;
mod trace;

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, SystemTime},
};

#[cfg(feature = "inspect")]
pub(crate) use self::{analysis::Facts, late::Why};
pub use self::{
    cause::{Cause, CauseTotal, NotTaken},
    late::{LateTimer, Span},
};
pub use crate::engine::recorder::{
    LIGHT_THRESHOLD, Recording,
    copy::Thread,
    event::{Event, Lost, Rescue, WakeReason},
};
use crate::engine::{
    handle::Handle,
    recorder::{copy::RawCopy, event::decode},
    shared::Shared,
};

impl Handle {
    /// Returns the flight recorder of the runtime, which tells why a timer was late: see
    /// [`flight`](crate::flight).
    pub fn flight_recorder(&self) -> FlightRecorder {
        FlightRecorder::new(self.shared().clone())
    }
}

/// The flight recorder of a runtime: see [`Handle::flight_recorder`].
///
/// [`Handle::flight_recorder`]: crate::Handle::flight_recorder
#[derive(Clone)]
pub struct FlightRecorder {
    shared: Arc<Shared>,
}

impl FlightRecorder {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns how much is recorded.
    pub fn recording(&self) -> Recording {
        self.shared.flight.recording()
    }

    /// Sets how much is recorded from now on. What the rings hold stays.
    pub fn set_recording(&self, recording: Recording) {
        self.shared.set_recording(recording);
    }

    /// Copies what the threads of the runtime have recorded last. No thread waits for this.
    ///
    /// Nothing is recorded on a clock that is or was [paused](crate::time::pause), except that the
    /// wall clock was set.
    pub fn snapshot(&self) -> Snapshot {
        self.last(usize::MAX)
    }

    /// Copies the last `most` events of each thread at most, as [`snapshot`](Self::snapshot) does.
    pub fn last(&self, most: usize) -> Snapshot {
        Snapshot::new(&self.shared.copy_rings(most))
    }

    /// Returns how many events each thread has recorded, including those that were overwritten. What
    /// an event says about its job and its timer counts as further events.
    ///
    /// Two calls tell whether there is something new for [`last`](Self::last).
    pub fn recorded(&self) -> Vec<(Thread, u64)> {
        // The copy has no events, and tells how many there were before them.
        let copy = self.shared.copy_rings(0);
        let counts = copy.tracks.iter();
        counts
            .map(|(thread, copied)| (*thread, copied.first))
            .collect()
    }

    /// Returns the copies that the recorder has kept by itself, oldest first: the last four of
    /// those made when a timer was later than [`late_threshold`], or a job stalled.
    ///
    /// [`late_threshold`]: crate::runtime::Builder::late_threshold
    pub fn kept(&self) -> Vec<Snapshot> {
        let copies = self.shared.kept_copies();
        copies.iter().map(|copy| Snapshot::new(copy)).collect()
    }

    /// Returns when the [kept](Self::kept) copies were made, oldest first. This reads no events.
    pub fn kept_times(&self) -> Vec<SystemTime> {
        let copies = self.shared.kept_copies();
        copies.iter().map(|copy| copy.wall).collect()
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder")
            .field("recording", &self.recording())
            .finish_non_exhaustive()
    }
}

/// What the threads of a runtime did last: a copy of their rings.
#[derive(Clone)]
#[non_exhaustive]
pub struct Snapshot {
    /// When the rings were copied, by the time of day.
    pub taken_at: SystemTime,
    /// When the rings were copied, in ns since the runtime was built.
    pub at: u64,
    /// How much was recorded when the rings were copied.
    pub recording: Recording,
    /// What each thread did: first the workers by number, then the helpers, then all other threads
    /// together.
    pub tracks: Vec<Track>,
    /// The processor core of each worker, by worker number, if workers are pinned.
    pub cores: Option<Vec<usize>>,
    /// Whether peers take over the timers of a stuck worker.
    pub rescues: bool,
    /// The [name of the runtime](crate::runtime::Builder::name).
    pub name: Option<String>,
}

/// What one thread did last.
#[derive(Clone, Debug)]
pub struct Track {
    /// The thread.
    pub thread: Thread,
    /// Its events by their moments, oldest first. A moment is in ns since the runtime was built.
    pub events: Vec<(u64, Event)>,
}

/// A snapshot without threads, of the time at which the runtime was built: a start for tests of
/// programs that read snapshots.
impl Default for Snapshot {
    fn default() -> Self {
        Self {
            taken_at: SystemTime::UNIX_EPOCH,
            at: 0,
            recording: Recording::default(),
            tracks: Vec::new(),
            cores: None,
            rescues: true,
            name: None,
        }
    }
}

impl Snapshot {
    pub(crate) fn new(copy: &RawCopy) -> Self {
        let tracks = copy.tracks.iter().map(|(thread, copied)| {
            // SAFETY: the words come from a ring, into which only `Track::write` and `Outside`
            // write, and they write what the functions of `event` return. The copy is a run of
            // whole events.
            let mut events = unsafe { decode(&copied.events) };
            // A run is recorded after it, with the moment before it.
            events.sort_by_key(|(at, _)| *at);
            Track {
                thread: *thread,
                events,
            }
        });
        Self {
            taken_at: copy.wall,
            at: copy.at,
            recording: copy.recording,
            tracks: tracks.collect(),
            cores: copy.cores.clone(),
            rescues: copy.rescues,
            name: copy.name.clone(),
        }
    }

    fn num_workers(&self) -> usize {
        let is_worker = |track: &&Track| matches!(track.thread, Thread::Worker(_));
        self.tracks.iter().filter(is_worker).count()
    }

    /// Returns when the rings were copied.
    pub fn taken_at(&self) -> SystemTime {
        self.taken_at
    }

    /// Returns how much was recorded when the rings were copied.
    pub fn recording(&self) -> Recording {
        self.recording
    }

    /// Returns how many events there are.
    pub fn num_events(&self) -> usize {
        self.tracks.iter().map(|track| track.events.len()).sum()
    }

    /// Returns the timers that ran at least this long after their deadlines and tolerances, the
    /// latest one first, each with the causes of its lateness.
    ///
    /// In light mode only timers that were 200 µs late or later are recorded: all of those that
    /// were late already when they were taken from their store, and one in 16 of those that were
    /// only queued for long.
    ///
    /// A sleep that a task polls long after it was woken counts as late, whatever the task did in
    /// between.
    pub fn late_timers(&self, at_least: Duration) -> Vec<LateTimer> {
        analysis::late_timers(self, at_least)
    }

    /// Returns what the analysis looks up, by which single late timers are explained.
    #[cfg(feature = "inspect")]
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts::new(self)
    }

    /// Returns the sums over these late timers by cause, the greatest sum first.
    pub fn causes(&self, at_least: Duration) -> Vec<CauseTotal> {
        cause::totals(&self.late_timers(at_least))
    }

    /// Writes the snapshot in the JSON format of trace events, which Perfetto and Chrome's
    /// `about:tracing` open. It includes the [late timers](Snapshot::late_timers) that were 200 µs
    /// late or later.
    ///
    /// There is a track for each worker and helper, one for all other threads, and one for each
    /// core if workers are pinned. An arrow leads from the arming of a timer to its run, if both
    /// were recorded.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_trace(&self, out: impl io::Write) -> io::Result<()> {
        trace::write(self, out)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("taken_at", &self.taken_at)
            .field("recording", &self.recording)
            .field("num_events", &self.num_events())
            .finish_non_exhaustive()
    }
}
