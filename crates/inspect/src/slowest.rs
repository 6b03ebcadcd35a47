//! The slowest late timers of each moment, for the cells of the page's heat map.
//!
//! While a page is open, this reads what is new in the rings of the flight recorder at each event
//! of the page. It divides time into columns, and keeps a bounded number of timers of each, in
//! words. The workers record what they record anyway, and wait for nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
    time::Duration,
};

use tourbillon::{
    Handle,
    flight::{FlightRecorder, LIGHT_THRESHOLD, Recording, Thread},
    metrics::{JobName, LatenessHistogram},
};
use tourbillon_flight::{Analysis, Found, Key, Stage, own_line};
use tourbillon_sync::lock;

use crate::snapshot::nanos;

/// The width of a column, in ns: the shortest that the page shows.
const FINE: u64 = 250_000_000;
/// How long fine columns are kept, in ns: a little longer than the shortest range of the page. Then
/// those of one coarse column are united.
const FINE_FOR: u64 = 34_000_000_000;
/// The width of a coarse column, in ns: that of the longest range of the page.
const COARSE: u64 = 2_000_000_000;
/// How long timers are kept, in ns: as long as the page keeps its history.
const KEPT_FOR: u64 = 602_000_000_000;
/// The most timers of a column.
const MOST: usize = 64;

/// How many events of a ring are read besides the new ones: what was going on before.
const CONTEXT: u64 = 1_024;
/// How many events of a ring are read at most at a time.
const MOST_EVENTS: u64 = 16_384;

/// The moments of taking are rounded by as much in light recording, in ns.
const ROUNDED: u64 = 1_024;

/// The slowest timers. Clones of a site share them.
#[derive(Debug, Default)]
pub(crate) struct Slowest(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Since when timers are kept, in ns. `None` before the first reading.
    since: Option<u64>,
    /// How many events each ring had at the last reading.
    read: HashMap<Thread, u64>,
    /// The columns with timers, by number.
    fine: BTreeMap<u64, Vec<Kept>>,
    coarse: BTreeMap<u64, Vec<Kept>>,
}

/// A timer that is kept, in words.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    key: Key,
    wake: Stage,
    queue: Option<Stage>,
    is_rescued: bool,
    /// Its cell in the column: see [`cell_of`].
    cell: (Thread, bool, usize),
    /// The lateness of all stages, in ns.
    pub(crate) late: u64,
    pub(crate) timer: Option<JobName>,
    pub(crate) why: Box<str>,
}

/// A cell of a heat map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) stage: Which,
    /// The worker, or `None` for the helpers.
    pub(crate) worker: Option<usize>,
    /// The number of the histogram's bucket.
    pub(crate) bucket: usize,
    /// From when to when the timers were counted, in ns: after `from`, and until `to`.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A stage of lateness, as the page has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Wake,
    Queue,
    Rescued,
}

/// What is known of a cell.
#[derive(Debug)]
pub(crate) struct Known {
    /// Since when timers are kept, in ns.
    pub(crate) since: Option<u64>,
    /// The timers, the slowest first, with the stage that was asked for.
    pub(crate) timers: Vec<(Stage, Kept)>,
}

/// A timer that is kept already, or one that was found now.
enum Entry {
    Old(Kept),
    New(Found),
}

impl Slowest {
    /// Reads what the flight recorder has recorded since the last call.
    pub(crate) fn collect(&self, handle: &Handle) {
        let mut state = lock(&self.0);
        let now = nanos(handle.uptime());
        let recorder = handle.flight_recorder();
        state.since.get_or_insert(now);
        state.age(now);
        let Some(most) = state.news(&recorder) else {
            return;
        };
        let snapshot = recorder.snapshot_last(most);
        let analysis = Analysis::new(&snapshot);
        // In light mode only such timers are recorded.
        let at_least = match snapshot.recording {
            Recording::Full => Duration::ZERO,
            _ => LIGHT_THRESHOLD,
        };
        let mut columns: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for found in analysis.find(at_least) {
            columns.entry(found.wake.at / FINE).or_default().push(found);
        }
        for (number, found) in columns {
            state.add(number, found, &analysis, now);
        }
    }

    /// Returns the timers of a cell, the slowest first.
    pub(crate) fn of(&self, cell: Cell) -> Known {
        let state = lock(&self.0);
        let all = state.coarse.values().chain(state.fine.values()).flatten();
        let timers = all.filter_map(|kept| Some((kept.stage_in(cell)?, kept.clone())));
        let mut timers: Vec<_> = timers.collect();
        timers.sort_by_key(|(stage, _)| std::cmp::Reverse(stage.late));
        Known {
            since: state.since,
            timers,
        }
    }
}

impl State {
    /// Returns how many events of each ring to read, or `None` if no ring has a new one.
    fn news(&mut self, recorder: &FlightRecorder) -> Option<usize> {
        let mut news = 0;
        for (thread, recorded) in recorder.event_counts() {
            let read = self.read.insert(thread, recorded).unwrap_or(0);
            news = news.max(recorded.saturating_sub(read));
        }
        let most = (news + CONTEXT).min(MOST_EVENTS);
        (news > 0).then_some(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Unites old fine columns, and forgets the oldest ones.
    fn age(&mut self, now: u64) {
        let young = self.fine.split_off(&fine_from(now));
        for (number, kept) in std::mem::replace(&mut self.fine, young) {
            let column = self.coarse.entry(number * FINE / COARSE).or_default();
            let all = std::mem::take(column).into_iter().chain(kept);
            *column = slowest(all.map(Entry::Old).collect(), None);
        }
        self.coarse = self.coarse.split_off(&kept_from(now));
    }

    /// Adds timers to the column with this number, of those that are fine.
    fn add(&mut self, number: u64, mut found: Vec<Found>, analysis: &Analysis<'_>, now: u64) {
        let coarse = number * FINE / COARSE;
        let column = if number >= fine_from(now) {
            self.fine.entry(number).or_default()
        } else if coarse >= kept_from(now) {
            self.coarse.entry(coarse).or_default()
        } else {
            return;
        };
        // Most of what is read again is known. And a timer that was taken may have run since.
        found.retain(|timer| {
            let key = timer.key();
            let knows = |kept: &Kept| kept.key == key || kept.key.completes(key);
            !column.iter().any(knows)
        });
        column.retain(|kept| !found.iter().any(|timer| timer.key().completes(kept.key)));
        let old = std::mem::take(column).into_iter().map(Entry::Old);
        let all = old.chain(found.into_iter().map(Entry::New)).collect();
        *column = slowest(all, Some(analysis));
    }
}

/// Returns the number of the first fine column at `now`.
fn fine_from(now: u64) -> u64 {
    now.saturating_sub(FINE_FOR) / FINE
}

/// Returns the number of the first coarse column that is kept at `now`.
fn kept_from(now: u64) -> u64 {
    now.saturating_sub(KEPT_FOR) / COARSE
}

/// Returns the bucket of a lateness in ns.
fn bucket_of(late: u64) -> usize {
    LatenessHistogram::bucket_of(Duration::from_nanos(late))
}

/// Returns the cell of a timer in its column: that of the stage in which it was late for longer.
fn cell_of(timer: &Found) -> (Thread, bool, usize) {
    let longer = timer.queue.filter(|queue| queue.late > timer.wake.late);
    let stage = longer.unwrap_or(timer.wake);
    (stage.thread, longer.is_some(), bucket_of(stage.late))
}

/// Returns those timers of a column that are kept: of each cell its slowest one, then of each cell
/// the next one, until there are enough. `analysis` explains the new ones.
fn slowest(mut all: Vec<Entry>, analysis: Option<&Analysis<'_>>) -> Vec<Kept> {
    let late = |entry: &Entry| match entry {
        Entry::Old(kept) => kept.late,
        Entry::New(timer) => timer.late(),
    };
    let cell = |entry: &Entry| match entry {
        Entry::Old(kept) => kept.cell,
        Entry::New(timer) => cell_of(timer),
    };
    all.sort_by_key(|entry| std::cmp::Reverse(late(entry)));
    // How many of the same cell are slower.
    let mut counts: HashMap<_, usize> = HashMap::new();
    let mut ranked: Vec<_> = all
        .into_iter()
        .map(|entry| {
            let count = counts.entry(cell(&entry)).or_default();
            *count += 1;
            (*count, entry)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(MOST);
    let kept = ranked.into_iter().filter_map(|(_, entry)| match entry {
        Entry::Old(kept) => Some(kept),
        Entry::New(timer) => analysis.map(|analysis| Kept::new(&timer, analysis)),
    });
    kept.collect()
}

impl Kept {
    fn new(timer: &Found, analysis: &Analysis<'_>) -> Self {
        let explained = analysis.explain(timer);
        let mut why = explained.why().to_string();
        let stack = analysis.stack(&explained);
        if let Some(line) = stack.as_deref().and_then(|text| own_line(text.lines())) {
            why = format!("{why}; in {line}");
        }
        Self {
            key: timer.key(),
            wake: timer.wake,
            queue: timer.queue,
            is_rescued: timer.is_rescued,
            cell: cell_of(timer),
            late: timer.late(),
            timer: explained.timer,
            why: why.into(),
        }
    }

    /// Returns the stage by which the timer is in a cell, if it is.
    fn stage_in(&self, cell: Cell) -> Option<Stage> {
        let stage = match cell.stage {
            Which::Wake => self.wake,
            Which::Rescued => Some(self.wake).filter(|_| self.is_rescued)?,
            Which::Queue => self.queue?,
        };
        let is_worker = match (stage.thread, cell.worker) {
            (Thread::Worker(number), Some(worker)) => number == worker,
            (Thread::Helper(_), None) => true,
            _ => false,
        };
        let buckets = bucket_of(stage.late.saturating_sub(ROUNDED))
            ..=bucket_of(stage.late.saturating_add(ROUNDED));
        let is_there = cell.from < stage.at && stage.at <= cell.to;
        (is_worker && is_there && buckets.contains(&cell.bucket)).then_some(stage)
    }

    /// Returns whether it was seen to run.
    pub(crate) fn has_run(&self) -> bool {
        self.queue.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a timer that worker 0 took at `at`, and that was as late as `late`, in ns.
    fn kept(at: u64, late: u64) -> Kept {
        let wake = Stage {
            thread: Thread::Worker(0),
            at,
            late,
        };
        Kept {
            key: Key {
                home: Some(0),
                deadline: at - late,
                ran: None,
            },
            wake,
            queue: None,
            is_rescued: false,
            cell: (wake.thread, false, bucket_of(late)),
            late,
            timer: None,
            why: "".into(),
        }
    }

    fn lates(kept: &[Kept]) -> Vec<u64> {
        kept.iter().map(|kept| kept.late / MS).collect()
    }

    #[test]
    fn each_cell_keeps_its_slowest_timer_first() {
        // Three cells, one of which has more timers than a column.
        let crowd = (0..MOST as u64).map(|i| kept(1_000 * MS, 100 * MS + i));
        let others = [10, 1, 50].map(|late| kept(1_000 * MS, late * MS));
        let all: Vec<_> = crowd.chain(others).map(Entry::Old).collect();
        let kept = slowest(all, None);
        assert_eq!(kept.len(), MOST);
        assert_eq!(lates(&kept[..5]), [100, 50, 10, 1, 100]);
        assert_eq!(kept[0].late, 100 * MS + MOST as u64 - 1);
    }

    #[test]
    fn old_columns_are_united_and_at_last_forgotten() {
        let mut state = State::default();
        let second = 1_000 * MS;
        for (number, late) in [(0, 3), (1, 5), (9, 7)] {
            let at = second + number * FINE;
            state.fine.insert(at / FINE, vec![kept(at, late * MS)]);
        }
        state.age(second + FINE);
        assert_eq!((state.fine.len(), state.coarse.len()), (3, 0));
        state.age(second + 3 * FINE + FINE_FOR);
        assert_eq!((state.fine.len(), state.coarse.len()), (1, 1));
        assert_eq!(lates(&state.coarse[&0]), [5, 3]);
        state.age(second + COARSE + KEPT_FOR);
        // The last one is in the second coarse column, which is still kept.
        assert_eq!((state.fine.len(), state.coarse.len()), (0, 1));
        state.age(second + 3 * COARSE + KEPT_FOR);
        assert!(state.coarse.is_empty());
    }

    #[test]
    fn a_cell_has_the_timers_of_its_time_and_bucket() {
        let slowest = Slowest::default();
        let at = 5_000 * MS;
        let column = [20, 21, 40].map(|late| kept(at, late * MS));
        lock(&slowest.0).fine.insert(at / FINE, column.into());
        let cell = Cell {
            stage: Which::Wake,
            worker: Some(0),
            bucket: bucket_of(20 * MS),
            from: at - FINE,
            to: at,
        };
        let found = |cell| slowest.of(cell).timers.len();
        assert_eq!(found(cell), 1);
        assert_eq!(bucket_of(21 * MS), cell.bucket + 1);
        for other in [
            Cell {
                worker: Some(1),
                ..cell
            },
            Cell {
                worker: None,
                ..cell
            },
            Cell {
                from: at,
                to: at + FINE,
                ..cell
            },
            Cell {
                stage: Which::Rescued,
                ..cell
            },
            Cell {
                stage: Which::Queue,
                ..cell
            },
            Cell {
                bucket: cell.bucket + 9,
                ..cell
            },
        ] {
            assert_eq!(found(other), 0, "{other:?}");
        }
    }
}
