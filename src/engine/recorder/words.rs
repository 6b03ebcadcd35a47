//! How the recorder writes and reads [events](Event): 16 bytes each, which are two words.
//!
//! The highest byte of the first word is the kind. The other 56 bits are a moment, in ns by the
//! runtime's clock, or an address. What an event has beyond its two words is in *details*: slots of
//! their own kinds right behind it. Details whose event was overwritten are dropped.

use std::ptr;

use tourbillon_shards::{NEVER, TypeName};

use crate::{
    engine::recorder::event::{Event, Lost, Rescue, WakeReason},
    metrics::{
        activity::{JobName, JobRef},
        label::Label,
        spawned::Spawned,
    },
};

/// The bits of the first word below the kind.
const LOW_BITS: u32 = 56;
const LOW: u64 = (1 << LOW_BITS) - 1;

/// The two words of an event.
pub(crate) type Words = [u64; 2];

/// An event or a detail, with the meaning of its first word's low bits and of its second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// Moment; until when.
    Parked = 1,
    /// Moment; until when.
    Resumed,
    /// Moment of its end; length in the upper 40 bits, jobs in the lower 24.
    Turn,
    /// Detail of `Resumed`, `Turn` and `Looped`: preempted, in ns; stolen, in ns.
    Lost,
    /// Moment; lateness of the worst in the upper 40 bits, count in the lower 24.
    Taken,
    /// Detail of `Taken`: since when batches left due timers behind, or zero; the stuck worker plus
    /// one in the upper 16 bits, or zero, and how long the rescue took so far in the lower 48.
    Before,
    /// Moment; lateness.
    TimerRan,
    /// Detail of `TimerRan`: when it was taken; the worker that owns it in the upper 16 bits, its
    /// tolerance in the lower 48. Of `Taken` only the tolerance counts.
    From,
    /// Detail: where the task was spawned, or zero; the name of its type.
    Job,
    /// Moment; number.
    JobBegan,
    /// Moment; the worker in the upper 32 bits, why in the lower 32.
    WokeWorker,
    /// Moment; from which worker in the upper 32 bits, jobs in the lower 32.
    Stole,
    /// Moment; worker in the upper 16 bits, whether it still runs in the next, length in the rest.
    Stalled,
    /// Moment; by how much.
    Stepped,
    /// Moment; for how long.
    Suspended,
    /// Moment; deadline.
    Armed,
    /// Moment; unused.
    Moved,
    /// Moment of its end; length.
    Looped,
    /// Detail where `Lost` is one: unused; throttled, in ns.
    Throttled,
    /// Detail behind `Job`: unused; the label.
    Label,
    /// Detail of `Stalled`: unused; the number of the stall.
    Numbered,
    /// Detail behind `Job`: unused; the name of the group.
    Group,
}

const KINDS: [Kind; 22] = [
    Kind::Parked,
    Kind::Resumed,
    Kind::Turn,
    Kind::Lost,
    Kind::Taken,
    Kind::Before,
    Kind::TimerRan,
    Kind::From,
    Kind::Job,
    Kind::JobBegan,
    Kind::WokeWorker,
    Kind::Stole,
    Kind::Stalled,
    Kind::Stepped,
    Kind::Suspended,
    Kind::Armed,
    Kind::Moved,
    Kind::Looped,
    Kind::Throttled,
    Kind::Label,
    Kind::Numbered,
    Kind::Group,
];

/// Returns when a sleep is to end, from the word that says it.
fn until(word: u64) -> Option<u64> {
    (word != NEVER).then_some(word)
}

fn words(kind: Kind, low: u64, word: u64) -> Words {
    [(kind as u64) << LOW_BITS | low & LOW, word]
}

/// Returns `upper` and `lower` in one word. Numbers that do not fit become the largest that does.
fn pair(upper: u64, lower: u64, lower_bits: u32) -> u64 {
    let upper = upper.min(u64::MAX >> lower_bits);
    upper << lower_bits | lower.min((1 << lower_bits) - 1)
}

fn split(word: u64, lower_bits: u32) -> (u64, u64) {
    (word >> lower_bits, word & ((1 << lower_bits) - 1))
}

pub(crate) fn parked(at: u64, until: u64) -> Words {
    words(Kind::Parked, at, until)
}

pub(crate) fn woken(at: u64, until: u64) -> Words {
    words(Kind::Resumed, at, until)
}

pub(crate) fn turn(at: u64, took: u64, jobs: u64) -> Words {
    words(Kind::Turn, at, pair(took, jobs, 24))
}

pub(crate) fn looped(at: u64, took: u64) -> Words {
    words(Kind::Looped, at, took)
}

/// Details of `woken`, `turn` and `looped`.
pub(crate) fn lost(lost: Lost) -> impl Iterator<Item = Words> {
    let throttled = (lost.throttled > 0).then(|| words(Kind::Throttled, 0, lost.throttled));
    let others = words(Kind::Lost, lost.preempted.min(LOW), lost.stolen);
    [others].into_iter().chain(throttled)
}

pub(crate) fn taken(at: u64, late: u64, count: u64) -> Words {
    words(Kind::Taken, at, pair(late, count, 24))
}

/// A detail of `taken` at the moment `at`. A moment needs 56 bits, so the rescue's is written as
/// the time until `at`.
pub(crate) fn before(at: u64, left: Option<u64>, rescue: Option<Rescue>) -> Words {
    let rescue = rescue.map_or(0, |it| {
        pair(it.from as u64 + 1, at.saturating_sub(it.came), 48)
    });
    words(Kind::Before, left.unwrap_or(0), rescue)
}

pub(crate) fn ran(at: u64, late: u64) -> Words {
    words(Kind::TimerRan, at, late)
}

/// A detail of `ran`.
pub(crate) fn from(taken: u64, home: usize, tolerance: u64) -> Words {
    words(Kind::From, taken, pair(home as u64, tolerance, 48))
}

/// The number that stands for the clocks, which no worker owns.
const NO_HOME: usize = u16::MAX as usize;

/// A detail of `ran`, for a timer of the wall clock or of the boot-time clock.
pub(crate) fn from_clock(taken: u64, tolerance: u64) -> Words {
    from(taken, NO_HOME, tolerance)
}

/// A detail of `taken`, if the first timer has a tolerance.
pub(crate) fn tolerance(tolerance: u64) -> Words {
    from_clock(0, tolerance)
}

/// A detail of `turn`, `taken`, `ran`, `run` and `stalled`.
pub(crate) fn job(job: JobRef) -> Words {
    let spawned = job
        .spawned
        .map_or(0, |it| it.as_ptr().expose_provenance() as u64);
    let name = ptr::from_ref(job.name).expose_provenance() as u64;
    // No address of a program needs more than 56 bits; a place that did would be left out.
    let spawned = if spawned <= LOW { spawned } else { 0 };
    words(Kind::Job, spawned, name)
}

/// The details of a job, with its label and its group if it has them.
pub(crate) fn named(job: Option<JobRef>) -> impl Iterator<Item = Words> {
    let text = |kind, text: Label| words(kind, 0, text.as_ptr().expose_provenance() as u64);
    let label = job
        .and_then(|job| job.label)
        .map(|it| text(Kind::Label, it));
    let group = job
        .and_then(|job| job.group)
        .map(|it| text(Kind::Group, it));
    job.map(self::job).into_iter().chain(label).chain(group)
}

pub(crate) fn run(at: u64, number: u64) -> Words {
    words(Kind::JobBegan, at, number)
}

pub(crate) fn woke(at: u64, worker: usize, why: WakeReason) -> Words {
    words(Kind::WokeWorker, at, pair(worker as u64, why as u64, 32))
}

pub(crate) fn stole(at: u64, from: usize, jobs: u64) -> Words {
    words(Kind::Stole, at, pair(from as u64, jobs, 32))
}

pub(crate) fn stalled(at: u64, worker: usize, is_running: bool, elapsed: u64) -> Words {
    let worker = pair(worker as u64, is_running.into(), 1);
    words(Kind::Stalled, at, pair(worker, elapsed, 47))
}

/// A detail of `stalled`.
pub(crate) fn numbered(number: u64) -> Words {
    words(Kind::Numbered, 0, number)
}

pub(crate) fn stepped(at: u64, by: i64) -> Words {
    words(Kind::Stepped, at, by as u64)
}

pub(crate) fn suspended(at: u64, length: u64) -> Words {
    words(Kind::Suspended, at, length)
}

pub(crate) fn armed(at: u64, deadline: u64) -> Words {
    words(Kind::Armed, at, deadline)
}

pub(crate) fn moved(at: u64) -> Words {
    words(Kind::Moved, at, 0)
}

/// Decodes the events of one ring, oldest first, each with its moment.
///
/// # Safety
///
/// The words come from the functions of this module, in the order in which a thread wrote them.
/// Some of the first may be missing.
pub(crate) unsafe fn decode(copied: &[Words]) -> Vec<(u64, Event)> {
    let mut events: Vec<(u64, Event)> = Vec::with_capacity(copied.len());
    for &[first, word] in copied {
        let Some(kind) = KINDS.into_iter().find(|it| *it as u64 == first >> LOW_BITS) else {
            // An empty slot: the ring is not full.
            continue;
        };
        let low = first & LOW;
        let event = match kind {
            Kind::Parked => Event::Parked { until: until(word) },
            Kind::Resumed => Event::Resumed {
                until: until(word),
                lost: Lost::default(),
            },
            Kind::Turn => {
                let (took, jobs) = split(word, 24);
                Event::Turn {
                    took,
                    jobs,
                    last: None,
                    lost: Lost::default(),
                }
            }
            Kind::Looped => Event::Looped {
                took: word,
                lost: Lost::default(),
            },
            Kind::Taken => {
                let (late, count) = split(word, 24);
                Event::Taken {
                    late,
                    tolerance: 0,
                    count,
                    left: None,
                    rescue: None,
                    stuck_in: None,
                }
            }
            Kind::TimerRan => Event::TimerRan {
                late: word,
                taken: low,
                home: None,
                tolerance: 0,
                timer: None,
            },
            Kind::JobBegan => Event::JobBegan {
                number: word,
                job: None,
            },
            Kind::WokeWorker => {
                let (worker, why) = split(word, 32);
                let why = match why {
                    0 => WakeReason::Search,
                    _ => WakeReason::Update,
                };
                Event::WokeWorker {
                    worker: worker as usize,
                    why,
                }
            }
            Kind::Stole => {
                let (from, jobs) = split(word, 32);
                Event::Stole {
                    from: from as usize,
                    jobs,
                }
            }
            Kind::Stalled => {
                let (worker, elapsed) = split(word, 47);
                let (worker, is_running) = split(worker, 1);
                Event::Stalled {
                    number: 0,
                    worker: worker as usize,
                    is_running: is_running == 1,
                    elapsed,
                    job: None,
                }
            }
            Kind::Stepped => Event::Stepped { by: word as i64 },
            Kind::Suspended => Event::Suspended { length: word },
            Kind::Armed => Event::Armed { deadline: word },
            Kind::Moved => Event::Moved,
            Kind::Label | Kind::Group => {
                let text = ptr::with_exposed_provenance_mut(word as usize);
                // SAFETY: guaranteed by the caller: `named` made it of a `Label`.
                let text = unsafe { Label::from_ptr(text) }.map(Label::text);
                let event = events.last_mut();
                if let Some(Some(job)) = event.and_then(|(_, event)| event.job_mut()) {
                    match kind {
                        Kind::Label => job.label = text,
                        _ => job.group = text,
                    }
                }
                continue;
            }
            Kind::Lost
            | Kind::Throttled
            | Kind::Before
            | Kind::From
            | Kind::Job
            | Kind::Numbered => {
                // SAFETY: guaranteed by the caller.
                let job = (kind == Kind::Job).then(|| unsafe { job_of(low, word) });
                if let Some((at, event)) = events.last_mut() {
                    event.add(*at, kind, low, word, job);
                }
                continue;
            }
        };
        events.push((low, event));
    }
    events
}

/// Returns the job whose addresses [`job`] wrote.
///
/// # Safety
///
/// Both are from [`job`].
unsafe fn job_of(spawned: u64, name: u64) -> JobName {
    let spawned = ptr::with_exposed_provenance_mut(spawned as usize);
    let name = ptr::with_exposed_provenance::<TypeName>(name as usize);
    // SAFETY: `job` got them from a `Spawned` and from a reference to static data, or `spawned` is
    // null.
    let (name, spawned) = unsafe { (&*name, Spawned::from_ptr(spawned)) };
    JobRef::new(name, spawned).name()
}

impl Event {
    /// Returns the job that the event has, or may have.
    fn job_mut(&mut self) -> Option<&mut Option<JobName>> {
        match self {
            Event::Turn { last: job, .. }
            | Event::Taken { stuck_in: job, .. }
            | Event::TimerRan { timer: job, .. }
            | Event::JobBegan { job, .. }
            | Event::Stalled { job, .. } => Some(job),
            _ => None,
        }
    }

    /// Adds a detail to the event before it, which was at the moment `at`.
    fn add(&mut self, at: u64, kind: Kind, low: u64, word: u64, detail: Option<JobName>) {
        match self {
            Event::Resumed { lost, .. } | Event::Turn { lost, .. } | Event::Looped { lost, .. }
                if kind == Kind::Lost =>
            {
                (lost.preempted, lost.stolen) = (low, word);
            }
            Event::Resumed { lost, .. } | Event::Turn { lost, .. } | Event::Looped { lost, .. }
                if kind == Kind::Throttled =>
            {
                lost.throttled = word;
            }
            Event::Taken { left, rescue, .. } if kind == Kind::Before => {
                *left = (low > 0).then_some(low);
                let (from, took) = split(word, 48);
                *rescue = (from > 0).then(|| Rescue {
                    from: from as usize - 1,
                    came: at.saturating_sub(took),
                });
            }
            Event::Taken { tolerance, .. } if kind == Kind::From => {
                (_, *tolerance) = split(word, 48);
            }
            Event::TimerRan {
                taken,
                home,
                tolerance,
                ..
            } if kind == Kind::From => {
                let (worker, late) = split(word, 48);
                let home_of = Some(worker as usize).filter(|&it| it != NO_HOME);
                (*taken, *home, *tolerance) = (low, home_of, late);
            }
            Event::Stalled { number, .. } if kind == Kind::Numbered => *number = word,
            _ if kind == Kind::Job => {
                if let Some(job) = self.job_mut() {
                    *job = detail;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
