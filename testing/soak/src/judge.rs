//! The checks: counts that must be exact, and figures that must not grow.
//!
//! Growth is judged by the medians of the first and the last third of the windows, after a warm-up.
//! The bounds tolerate a busy machine. A figure that grows steadily exceeds them sooner or later.

use serde::Serialize;
use tourbillon::metrics::Counts;
use tourbillon_cli::figures::{grouped, scaled};

use super::{
    tally::{Count, Fault, Tally},
    watch::{Window, median},
};

/// Growth is judged if the run lasts at least this long, in s, and has more windows than
/// `MIN_WINDOWS`.
const MIN_SECONDS: f64 = 55.0;
const MIN_WINDOWS: usize = 9;

/// Memory may grow by a tenth, or by this many bytes.
const RSS_SLACK: f64 = 8.0 * 1024.0 * 1024.0;
/// Descriptors and threads that come and go: connections, blocking threads, runtimes beside.
const COMING_AND_GOING: f64 = 8.0;
/// The median lateness may grow by this factor, or up to `LATENESS_SLACK`, in µs. A figure that
/// grows evenly from zero grows 3.5-fold from the first to the last third.
const LATENESS_FACTOR: f64 = 2.5;
const LATENESS_SLACK: f64 = 5_000_000.0;
/// CPU time per operation may grow by this factor.
const COST_FACTOR: f64 = 3.0;

/// A check and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    /// `None` if there was too little data to judge.
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

/// The runtime's counters that are judged.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) armed: u64,
    pub(super) over: u64,
    pub(super) fired: u64,
    pub(super) cancelled: u64,
    pub(super) shut_down: u64,
    pub(super) callbacks: u64,
    pub(super) panics: u64,
}

impl From<&Counts> for Totals {
    fn from(counts: &Counts) -> Self {
        Self {
            armed: counts.armed(),
            over: counts.over(),
            fired: counts.fired(),
            cancelled: counts.cancelled(),
            shut_down: counts.shut_down(),
            callbacks: counts.callbacks(),
            panics: counts.panics(),
        }
    }
}

/// Counts at rest, and after the end of the runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Timers of the ledger without a recorded end.
    pub(super) lost: u64,
    /// Timers that last until the runtime ends.
    pub(super) lasting: u64,
    /// Pending timers of the runtime, at rest.
    pub(super) pending: usize,
    /// Garbage at rest, as a share of its bound.
    pub(super) garbage_share: f64,
    /// Tasks that have not ended, at rest.
    pub(super) tasks: usize,
    /// The runtime's counters, at rest.
    pub(super) resting: Totals,
    /// The runtime's counters after its end.
    pub(super) total: Totals,
    /// Number of workers after its end.
    pub(super) workers: usize,
    /// Descriptors and threads, before the runtime was built and after its end.
    pub(super) fds: [usize; 2],
    pub(super) threads: [usize; 2],
}

/// Returns the checks of exact counts.
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
            "counted, by the shared",
        ),
        even(
            "the runtime counts alike: panics",
            resting.panics,
            get(Count::Panics),
            "counted, by the shared",
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
            total.armed >= armed && total.armed == total.over && rest.workers == 0,
            format!(
                "{} armed, {} over: {} fired, {} cancelled, {} shut down",
                total.armed, total.over, total.fired, total.cancelled, total.shut_down
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

/// Returns the first and the last third of the windows, without the warm-up.
fn thirds(windows: &[Window]) -> Option<(&[Window], &[Window])> {
    let warm = windows.get((windows.len() / 10).max(1)..)?;
    let third = warm.len() / 3;
    (third > 0).then(|| (&warm[..third], &warm[warm.len() - third..]))
}

/// Returns the checks of growth. They are judged only if the run was long enough.
pub(super) fn trends(windows: &[Window]) -> Vec<Check> {
    let long = windows.last().is_some_and(|last| last.at >= MIN_SECONDS);
    // A short run is reported, but not judged: its figures still change with the warm-up.
    let judged = long && windows.len() > MIN_WINDOWS;
    let Some((first, last)) = thirds(windows) else {
        return Vec::new();
    };
    let check =
        |name, of: fn(&Window) -> f64, show: fn(f64) -> String, is_well: fn(f64, f64) -> bool| {
            let middle = |windows: &[Window]| median(windows.iter().map(of)).unwrap_or(0.0);
            let (first, last) = (middle(first), middle(last));
            Check {
                name,
                passed: judged.then(|| is_well(first, last)),
                detail: format!("{} at first, {} at last", show(first), show(last)),
            }
        };
    vec![
        check(
            "memory does not grow",
            |it| it.rss as f64,
            |bytes| format!("{:.1} MB", bytes / 1e6),
            |first, last| last <= (first * 1.1).max(first + RSS_SLACK),
        ),
        check(
            "descriptors do not grow",
            |it| it.fds[0] as f64,
            |fds| format!("{fds:.0}"),
            |first, last| last <= first + COMING_AND_GOING,
        ),
        check(
            "threads do not grow",
            |it| it.threads[0] as f64,
            |threads| format!("{threads:.0}"),
            |first, last| last <= first + COMING_AND_GOING,
        ),
        check(
            "garbage is within its bound",
            |it| it.garbage_share,
            |share| format!("{share:.2} of it"),
            |first, last| first <= 1.0 && last <= 1.0,
        ),
        check(
            "lateness stays flat",
            |it| it.late_us.p50,
            |micros| scaled(micros * 1e3),
            |first, last| last <= (first * LATENESS_FACTOR).max(LATENESS_SLACK),
        ),
        check(
            "timers cost the same",
            Window::rate_of_cpu,
            |rate| format!("{} per second of CPU time", grouped(rate as u64)),
            |first, last| last >= first / COST_FACTOR,
        ),
    ]
}

#[cfg(test)]
mod tests;
