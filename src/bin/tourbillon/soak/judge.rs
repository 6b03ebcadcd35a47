//! Passing judgement: on what has to be exact, and on what must not grow.
//!
//! Trends are judged by medians of the first and the last third of the windows, after a warm-up, and by bounds that a
//! machine with other things to do does not reach, but what goes on growing does, sooner or later.

use serde::Serialize;
use tourbillon::metrics::Counts;

use super::{
    tally::{Count, Fault, Tally},
    watch::{Window, median},
};

/// So long a run has to be, in s, and so many windows have to be left after the warm-up, for trends to be judged.
const LONG_ENOUGH: f64 = 55.0;
const ENOUGH: usize = 9;

/// Memory may grow by a tenth, and by this, in bytes.
const RSS_SLACK: f64 = 8.0 * 1024.0 * 1024.0;
/// Descriptors and threads that come and go with what is done: connections, blocking threads, runtimes beside.
const COMING_AND_GOING: f64 = 8.0;
/// The median of lateness may become so many times what it was (what grows from nothing, evenly, becomes three and a
/// half times as much from the first third to the last), and in any case this, in µs.
const LATER: f64 = 2.5;
const LATE: f64 = 5_000_000.0;
/// So many times more processor time may arming and cancelling come to cost.
const DEARER: f64 = 3.0;

/// One check, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    /// None: there was too little to judge by.
    pub(super) passed: Option<bool>,
    pub(super) detail: String,
}

impl Check {
    fn exact(name: &'static str, passed: bool, detail: String) -> Self {
        Self {
            name,
            passed: Some(passed),
            detail,
        }
    }
}

/// What was counted when all had come to rest, and when all was over.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Timers of the ledger of which no end was noted.
    pub(super) lost: u64,
    /// Timers that were to last until the runtime ends.
    pub(super) lasting: u64,
    /// Of the runtime at rest: timers that wait.
    pub(super) pending: usize,
    /// The garbage, as a share of its bound.
    pub(super) garbage_share: f64,
    /// Tasks that have not ended.
    pub(super) tasks: usize,
    /// What the runtime counted, at rest.
    pub(super) resting: Counts,
    /// And when it was over.
    pub(super) total: Counts,
    /// Workers that it had then.
    pub(super) workers: usize,
    /// Descriptors and threads before the runtime was built, and when it was over.
    pub(super) fds: [usize; 2],
    pub(super) threads: [usize; 2],
}

/// The checks that are exact.
pub(super) fn exact(tally: &Tally, rest: &Rest, faults: &[Fault]) -> Vec<Check> {
    let get = |what| tally.get(what);
    let (armed, fired) = (get(Count::Armed), get(Count::Fired));
    let (cancelled, ended) = (get(Count::Cancelled), get(Count::ShutDown));
    let (made, dropped) = (get(Count::Made), get(Count::Dropped));
    let Rest { total, resting, .. } = rest;
    let faulty = faults.iter().map(|fault| fault.times).sum::<u64>();
    let even =
        |name, a: u64, b: u64, what: &str| Check::exact(name, a == b, format!("{a} {what} {b}"));
    vec![
        Check::exact(
            "timers end once",
            made > 0 && armed == fired + cancelled + ended && rest.lost == 0,
            format!(
                "{armed} armed, {fired} fired, {cancelled} cancelled, {ended} shut down, {} lost",
                rest.lost
            ),
        ),
        Check::exact(
            "no fault was noted",
            faulty == 0,
            match faults {
                [] => "no timer early, no answer wrong, nothing left behind".to_owned(),
                _ => {
                    let some = |n, one| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
                    let kinds = some(faults.len() as u64, "kind");
                    format!("{} of {kinds}", some(faulty, "fault"))
                }
            },
        ),
        even("callbacks are dropped", made, dropped, "made, dropped"),
        even(
            "the runtime counts alike: runs",
            resting.callbacks,
            get(Count::Runs),
            "counted, by the books",
        ),
        even(
            "the runtime counts alike: panics",
            resting.panics,
            get(Count::Panics),
            "counted, by the books",
        ),
        even(
            "only what lasts is pending at rest",
            rest.pending as u64,
            rest.lasting,
            "pending, lasting",
        ),
        Check::exact(
            "no task is left at rest",
            rest.tasks == 0,
            format!("{} tasks", rest.tasks),
        ),
        Check::exact(
            "garbage is within its bound at rest",
            rest.garbage_share <= 1.0,
            format!("{:.2} of it", rest.garbage_share),
        ),
        even(
            "the shutdown ends what lasts",
            total.shut_down,
            rest.lasting,
            "shut down, lasting",
        ),
        Check::exact(
            "the runtime's counters balance",
            total.armed() >= armed && total.armed() == total.over() && rest.workers == 0,
            format!(
                "{} armed, {} over: {} fired, {} cancelled, {} shut down",
                total.armed(),
                total.over(),
                total.fired,
                total.cancelled,
                total.shut_down
            ),
        ),
        even(
            "descriptors are as before",
            rest.fds[1] as u64,
            rest.fds[0] as u64,
            "at the end, before",
        ),
        even(
            "threads are as before",
            rest.threads[1] as u64,
            rest.threads[0] as u64,
            "at the end, before",
        ),
    ]
}

/// The first and the last third of the windows, without the warm-up.
fn thirds(windows: &[Window]) -> Option<(&[Window], &[Window])> {
    let warm = windows.get((windows.len() / 10).max(1)..)?;
    let third = warm.len() / 3;
    (third > 0).then(|| (&warm[..third], &warm[warm.len() - third..]))
}

/// The checks of what must not grow. They are judged if there is enough to judge by.
pub(super) fn trends(windows: &[Window]) -> Vec<Check> {
    let long = windows.last().is_some_and(|last| last.at >= LONG_ENOUGH);
    let judged = long && windows.len() > ENOUGH;
    let Some((first, last)) = thirds(windows) else {
        return Vec::new();
    };
    let check =
        |name, of: fn(&Window) -> f64, unit: &str, scale: f64, is_well: fn(f64, f64) -> bool| {
            let middle = |windows: &[Window]| median(windows.iter().map(of)).unwrap_or(0.0);
            let (first, last) = (middle(first), middle(last));
            Check {
                name,
                passed: judged.then(|| is_well(first, last)),
                detail: format!(
                    "{:.1} at first, {:.1} at last{unit}",
                    first / scale,
                    last / scale
                ),
            }
        };
    vec![
        check(
            "memory does not grow",
            |it| it.rss as f64,
            " MB",
            1e6,
            |first, last| last <= (first * 1.1).max(first + RSS_SLACK),
        ),
        check(
            "descriptors do not grow",
            |it| it.fds[0] as f64,
            "",
            1.0,
            |first, last| last <= first + COMING_AND_GOING,
        ),
        check(
            "threads do not grow",
            |it| it.threads[0] as f64,
            "",
            1.0,
            |first, last| last <= first + COMING_AND_GOING,
        ),
        check(
            "garbage is within its bound",
            |it| it.garbage_share,
            " of it",
            1.0,
            |first, last| first <= 1.0 && last <= 1.0,
        ),
        check(
            "lateness stays flat",
            |it| it.late_us.p50,
            " us (median)",
            1.0,
            |first, last| last <= (first * LATER).max(LATE),
        ),
        check(
            "timers cost the same",
            Window::rate_of_cpu,
            " armed and cancelled in a second of processor time",
            1.0,
            |first, last| last >= first / DEARER,
        ),
    ]
}

#[cfg(test)]
mod tests;
