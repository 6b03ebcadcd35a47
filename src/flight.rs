//! The flight recorder: why a timer was late.
//!
//! Each thread of a runtime records what it did last, in a ring of fixed size:
//! [`Handle::flight_recorder`](crate::Handle::flight_recorder). A [`Snapshot`] is a copy of all
//! rings: its events are public. The crate `tourbillon-flight` finds late timers in them, with
//! their causes, and writes traces for viewers.
//!
//! ```
//! use tourbillon::{flight::{Event, Recording}, runtime::Builder, time::sleep};
//!
//! # fn main() -> Result<(), tourbillon::BuildError> {
//! let runtime = Builder::new().flight_recorder(Recording::Full).build()?;
//! runtime.block_on(runtime.spawn(sleep(std::time::Duration::from_millis(1)))).unwrap();
//! for track in runtime.handle().flight_recorder().snapshot().tracks {
//!     for (at, event) in track.events {
//!         if let Event::TimerRan { late, .. } = event {
//!             println!("{:?} at {at} ns: a timer ran {late} ns late", track.thread);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::{fmt, sync::Arc, time::SystemTime};

pub use crate::engine::recorder::{
    LIGHT_THRESHOLD, Recording,
    copy::Thread,
    event::{Event, Lost, Rescue, WakeReason},
};
use crate::engine::{
    handle::Handle,
    recorder::{copy::RawCopy, words::decode},
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
        self.snapshot_last(usize::MAX)
    }

    /// Copies the last `most` events of each thread at most, as [`snapshot`](Self::snapshot) does.
    pub fn snapshot_last(&self, most: usize) -> Snapshot {
        Snapshot::new(&self.shared.copy_rings(most), &self.shared)
    }

    /// Returns how many events each thread has recorded, including those that were overwritten.
    /// What an event says about its job and its timer counts as further events.
    ///
    /// Two calls tell whether there is something new for [`snapshot_last`](Self::snapshot_last).
    pub fn event_counts(&self) -> Vec<(Thread, u64)> {
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
        copies
            .iter()
            .map(|copy| Snapshot::new(copy, &self.shared))
            .collect()
    }

    /// Returns when the [kept](Self::kept) copies were made, oldest first. This reads no events.
    pub fn kept_at(&self) -> Vec<SystemTime> {
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
    /// The stacks that were [added](crate::Handle::add_stack) to recent stalls, oldest first, each
    /// with the number of its [stall](Event::Stalled).
    pub stacks: Vec<(u64, Arc<str>)>,
}

/// What one thread did last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Track {
    /// The thread.
    pub thread: Thread,
    /// Its events by their moments, oldest first. A moment is in ns since the runtime was built.
    pub events: Vec<(u64, Event)>,
}

impl Track {
    /// Creates a track of events, oldest first, for tests of programs that read snapshots.
    pub fn new(thread: Thread, events: Vec<(u64, Event)>) -> Self {
        Self { thread, events }
    }
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
            stacks: Vec::new(),
        }
    }
}

impl Snapshot {
    pub(crate) fn new(copy: &RawCopy, shared: &Shared) -> Self {
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
            // Stacks come after the stalls, so the copy has none.
            stacks: shared.stalls.load().all_stacks(),
        }
    }

    /// Returns how many events there are.
    pub fn num_events(&self) -> usize {
        self.tracks.iter().map(|track| track.events.len()).sum()
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
