//! The record of each timer: all calls, the runtime's answers, and what the runtime did, each
//! with the two moments between which it happened. The mutexes are the standard library's: no
//! thread reaches a point of the world while it has one of them locked.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tourbillon::{
    task::Id,
    timer::{Cancel, Outcome, Reset, Started},
};
use tourbillon_sim::raw as sim;

/// A value that stands for no moment and for no deadline.
pub const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Once,
    /// Recurs with this period, at most this many times.
    Every(u64, u64),
    Boot,
    /// The flag: the timer ends if a step of the clock jumps over its deadline.
    Wall(bool),
}

impl Kind {
    /// Returns the time of the timer's clock.
    pub fn now(self) -> u64 {
        match self {
            Kind::Once | Kind::Every(..) => sim::now(),
            Kind::Boot => sim::boot(),
            Kind::Wall(_) => sim::wall(),
        }
    }
}

/// Something that happened between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub begin: u64,
    /// [`NEVER`] if it has not ended.
    pub end: u64,
    /// The times of the timer's clock at these two moments.
    pub from: u64,
    pub to: u64,
    /// The time of the monotonic clock at `begin`.
    pub at: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The timer was armed with a deadline between these two.
    Armed(u64, u64),
    Started(Started, u64, u64),
    Reset(Reset, u64, u64),
    Cancel(Cancel),
    /// Its callback was called.
    Called(Outcome),
}

#[derive(Debug)]
pub struct Record {
    pub kind: Kind,
    /// Whether its callback takes outcomes.
    pub tells: bool,
    pub named: bool,
    pub tolerance: u64,
    /// Its wait, unless it is reset.
    pub wait: u64,
    /// Whether the runtime refused it.
    pub refused: bool,
    /// Whether the caller got an error.
    pub failed: bool,
    /// How often its callback was dropped.
    pub dropped: u32,
    pub events: Vec<Event>,
}

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

pub fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn add(record: Record) -> usize {
    let mut records = records();
    records.push(record);
    records.len() - 1
}

/// The beginning of an event.
#[derive(Clone, Copy)]
pub struct Begun {
    kind: Kind,
    moment: u64,
    from: u64,
    at: u64,
}

impl Begun {
    pub fn now(kind: Kind) -> Self {
        Self {
            kind,
            moment: sim::moment(),
            from: kind.now(),
            at: sim::now(),
        }
    }

    /// Records the end of the event. `what` gets the times of the clock before and after it.
    pub fn end(self, id: usize, what: impl FnOnce(u64, u64) -> What) {
        let to = self.kind.now();
        let event = Event {
            begin: self.moment,
            end: sim::moment(),
            from: self.from,
            to,
            at: self.at,
            what: what(self.from, to),
        };
        records()[id].events.push(event);
    }
}

/// A running call of a callback.
pub struct Call {
    id: usize,
    place: usize,
}

impl Call {
    pub fn begin(id: usize, how: Outcome) -> Self {
        let kind = records()[id].kind;
        let begun = Begun::now(kind);
        sim::note(|| format!("timer {id} is called: {how:?}"));
        let mut records = records();
        let events = &mut records[id].events;
        events.push(Event {
            begin: begun.moment,
            end: NEVER,
            from: begun.from,
            to: begun.from,
            at: begun.at,
            what: What::Called(how),
        });
        Self {
            id,
            place: events.len() - 1,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (end, to) = (sim::moment(), sim::now());
        let mut records = records();
        let event = &mut records[self.id].events[self.place];
        event.end = end;
        event.to = to;
    }
}

/// A value in a callback that records the callback's drop.
pub struct Alive(pub usize);

impl Drop for Alive {
    fn drop(&mut self) {
        records()[self.0].dropped += 1;
    }
}

/// A job that may block.
#[derive(Debug)]
pub struct Job {
    /// When `spawn_blocking` returned, and the job's id.
    pub taken: Option<(u64, Id)>,
    /// When it began to run.
    pub ran: Option<u64>,
}

/// What was observed of tasks, and all other counts.
#[derive(Debug, Default)]
pub struct Tally {
    pub tasks: u64,
    /// How many futures were dropped.
    pub tasks_gone: u64,
    /// How many futures ran to their end.
    pub tasks_through: u64,
    pub sleeps: u64,
    pub timeouts: u64,
    /// Jobs given to `spawn_blocking`, in the order of the calls.
    pub blocking: Vec<Job>,
    pub blocking_gone: u64,
    /// The tasks and jobs that the program aborted, in time or too late.
    pub aborted: HashSet<Id>,
    /// How many timers were cancelled by their name.
    pub by_name: u64,
    pub refreshed_by_name: bool,
    /// The times at which callbacks or tasks blocked, in ns.
    pub blocks: Vec<(u64, u64)>,
    /// The greatest lateness that was observed.
    pub latest: u64,
    /// How many ends of waits were observed: of sleeps, time limits, and timers that ran (only the
    /// first run of a recurring one).
    pub waits: u64,
    /// How many of these had a bound, and how many the bound for a run without faults.
    pub held: u64,
    pub sharp: u64,
    /// When the program began to end the runtime: the moment, and the time.
    pub ending: Option<(u64, u64)>,
    /// The moment at which the runtime and its threads had ended. `None` if no thread waited for
    /// that.
    pub ended: Option<u64>,
    /// The times of the monotonic, the boot and the wall clock at the final check.
    pub seen: [u64; 3],
}

impl Tally {
    /// Returns the time of the timer's clock at the final check.
    pub fn ended_at(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Once | Kind::Every(..) => self.seen[0],
            Kind::Boot => self.seen[1],
            Kind::Wall(_) => self.seen[2],
        }
    }
}

static TALLY: Mutex<Option<Tally>> = Mutex::new(None);

pub fn tally<R>(f: impl FnOnce(&mut Tally) -> R) -> R {
    let mut tally = TALLY.lock().unwrap_or_else(PoisonError::into_inner);
    f(tally.get_or_insert_default())
}

/// Records that the runtime has ended. Fails if a callback of it is still running.
pub fn ended() {
    tally(|tally| tally.ended = Some(sim::moment()));
    for record in records().iter() {
        let runs = |it: &&Event| it.end == NEVER && it.what == What::Called(Outcome::Fired);
        if let Some(event) = record.events.iter().find(runs) {
            sim::fail(&format!("{event:?}: it runs, and the runtime has ended"));
        }
    }
}

/// Returns how many callbacks are not dropped yet.
pub fn waiting() -> u64 {
    records().iter().filter(|it| it.dropped == 0).count() as u64
}
