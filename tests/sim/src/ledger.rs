//! What was asked of the runtime, what it answered, and what it did: for each timer, with the moments between which
//! that was. The mutexes are the standard library's: no point of the world is under them.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tourbillon::{Cancel, Outcome, Reset, Started, sim, task::Id};

/// No moment, and no deadline.
pub const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Once,
    /// With a period, and so many times at most.
    Every(u64, u64),
    Boot,
    /// Whether it ends if a step of the clock jumps over it.
    Wall(bool),
}

impl Kind {
    /// What its clock shows.
    pub fn now(self) -> u64 {
        match self {
            Kind::Once | Kind::Every(..) => sim::now(),
            Kind::Boot => sim::boot(),
            Kind::Wall(_) => sim::wall(),
        }
    }
}

/// What happened, between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub begin: u64,
    /// [`NEVER`]: it has not come to its end.
    pub end: u64,
    /// What the timer's clock showed then.
    pub from: u64,
    pub to: u64,
    /// The same by the monotonic clock.
    pub at: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// It waits for a moment between these two.
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
    /// Its callback is told how it ended.
    pub tells: bool,
    pub named: bool,
    pub tolerance: u64,
    /// How long it waits, if nobody changes that.
    pub wait: u64,
    /// It was refused: none of the rest counts.
    pub refused: bool,
    /// How many times its callback was dropped.
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

/// Something begins.
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

    /// It is over; `what` is made of what the clock showed before and after.
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

/// A callback is called.
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

/// Is in a callback for as long as that is there.
pub struct Alive(pub usize);

impl Drop for Alive {
    fn drop(&mut self) {
        records()[self.0].dropped += 1;
    }
}

/// A job that may block.
#[derive(Debug)]
pub struct Job {
    /// When `spawn_blocking` has returned, the moment at which it did, and the job's number.
    pub taken: Option<(u64, Id)>,
    /// The moment at which it began to run.
    pub ran: Option<u64>,
}

/// What was seen of tasks, and of all the rest that is counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub tasks: u64,
    /// How many futures are gone.
    pub tasks_gone: u64,
    pub tasks_through: u64,
    pub sleeps: u64,
    pub timeouts: u64,
    /// Jobs given to `spawn_blocking`, in the order in which that was called.
    pub blocking: Vec<Job>,
    pub blocking_gone: u64,
    /// The tasks and jobs that were aborted, whether in time or not.
    pub aborted: HashSet<Id>,
    /// How many timers were cancelled by their name.
    pub by_name: u64,
    pub refreshed_by_name: bool,
    /// When callbacks or tasks blocked, in ns.
    pub blocks: Vec<(u64, u64)>,
    /// How late what was waited for was, at most.
    pub latest: u64,
    /// How many ends of waits were seen: of sleeps, time limits, and timers that ran (of those that recur, the first).
    pub waits: u64,
    /// Of these, how many were held to some bound, and how many to the one for where nothing goes wrong.
    pub held: u64,
    pub sharp: u64,
    /// The end of the runtime was begun: the moment, and the time.
    pub ending: Option<(u64, u64)>,
    /// The runtime has ended, and its threads with it: the moment. None: nobody waited for that.
    pub ended: Option<u64>,
    /// What the clocks showed when all was looked at: monotonic, boot, wall.
    pub seen: [u64; 3],
}

impl Tally {
    /// What the clock of such timers showed when all was looked at.
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

/// The runtime has ended: no callback of its is running, and from now on none does.
pub fn ended() {
    tally(|tally| tally.ended = Some(sim::moment()));
    for record in records().iter() {
        let runs = |it: &&Event| it.end == NEVER && it.what == What::Called(Outcome::Fired);
        if let Some(event) = record.events.iter().find(runs) {
            sim::fail(&format!("{event:?}: it runs, and the runtime has ended"));
        }
    }
}

/// How many callbacks there are still.
pub fn waiting() -> u64 {
    records().iter().filter(|it| it.dropped == 0).count() as u64
}
