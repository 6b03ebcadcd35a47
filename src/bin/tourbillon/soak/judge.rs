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
mod tests {
    use super::*;
    use crate::figures::Lateness;

    /// A run of 60 windows of 5 s in which nothing changes, but by some noise.
    fn steady() -> Vec<Window> {
        let window = |i: usize| Window {
            at: (i + 1) as f64 * 5.0,
            seconds: 5.0,
            rss: 40_000_000 + (i as u64 * 7 % 5) * 300_000,
            fds: [30 + i * 3 % 4, 60],
            threads: [12 + i % 2, 20],
            pending: 20_000,
            garbage: [3_000, 9_000],
            garbage_share: 0.6,
            armed: 100_000.0 + (i * 13 % 7) as f64 * 9_000.0,
            fired: 40_000.0,
            cancelled: 60_000.0,
            moved: 10_000.0,
            cpu_seconds: 10.0,
            late_us: Lateness {
                p50: 80.0 + (i * 11 % 9) as f64 * 100.0,
                p99: 3e3,
                p999: 9e3,
                max: 2e4,
            },
            wake_late_us: [50.0, 2e3],
        };
        (0..60).map(window).collect()
    }

    /// The names of the checks that did not pass.
    fn failed(checks: &[Check]) -> Vec<&'static str> {
        let failed = checks.iter().filter(|check| check.passed == Some(false));
        failed.map(|check| check.name).collect()
    }

    /// What the judge says of a run in which each window differs by this from a steady one.
    fn verdict(differ: impl Fn(usize, &mut Window)) -> Vec<&'static str> {
        let mut windows = steady();
        for (i, window) in windows.iter_mut().enumerate() {
            differ(i, window);
        }
        failed(&trends(&windows))
    }

    #[test]
    fn a_steady_run_passes() {
        assert_eq!(verdict(|_, _| ()), [""; 0]);
        let judged = trends(&steady());
        assert!(judged.len() == 6 && judged.iter().all(|check| check.passed.is_some()));
    }

    #[test]
    fn what_grows_all_the_time_is_found() {
        assert_eq!(
            verdict(|i, it| it.rss += 400_000 * i as u64),
            ["memory does not grow"]
        );
        assert_eq!(
            verdict(|i, it| it.fds[0] += i / 4),
            ["descriptors do not grow"]
        );
        assert_eq!(
            verdict(|i, it| it.threads[0] += i / 4),
            ["threads do not grow"]
        );
        assert_eq!(
            verdict(|i, it| it.late_us.p50 += i as f64 * 2e5),
            ["lateness stays flat"]
        );
        let slower = |i: usize, it: &mut Window| {
            (it.armed, it.cancelled) =
                (it.armed / (1.0 + i as f64), it.cancelled / (1.0 + i as f64));
        };
        assert_eq!(verdict(slower), ["timers cost the same"]);
        assert_eq!(
            verdict(|_, it| it.garbage_share = 1.2),
            ["garbage is within its bound"]
        );
    }

    #[test]
    fn what_a_busy_machine_does_is_no_trend() {
        // The warm-up is higher, or lower.
        assert_eq!(
            verdict(|i, it| it.rss += if i < 6 { 90_000_000 } else { 0 }),
            [""; 0]
        );
        assert_eq!(
            verdict(|i, it| it.rss -= if i < 6 { 30_000_000 } else { 0 }),
            [""; 0]
        );
        // Others take the processor for a quarter of the run.
        let starved = |i: usize, it: &mut Window| {
            if i >= 45 {
                it.late_us.p50 += 1_000_000.0;
                it.armed /= 5.0;
                it.cancelled /= 5.0;
                it.cpu_seconds /= 5.0;
            }
        };
        assert_eq!(verdict(starved), [""; 0]);
        // A single window that is far off.
        let spike = |i: usize, it: &mut Window| {
            if i == 50 {
                it.rss *= 3;
                it.fds[0] += 500;
                it.late_us.p50 = 1e6;
                it.armed = 0.0;
                it.garbage_share = 5.0;
            }
        };
        assert_eq!(verdict(spike), [""; 0]);
    }

    #[test]
    fn a_short_run_is_reported_and_not_judged() {
        let mut windows = steady();
        for (i, window) in windows.iter_mut().enumerate() {
            window.rss += i as u64 * 100_000_000;
        }
        for few in [0, 1, 3, 9] {
            let checks = trends(&windows[..few]);
            assert!(checks.iter().all(|check| check.passed.is_none()), "{few}");
        }
        assert!(trends(&windows[..2]).is_empty());
        assert!(!trends(&windows[..4]).is_empty());
        assert_eq!(failed(&trends(&windows[..12])), ["memory does not grow"]);
    }

    fn counts(armed: u64, fired: u64, cancelled: u64, shut_down: u64) -> Counts {
        let mut counts = Counts::default();
        counts.armed_local = armed;
        (counts.fired, counts.cancelled, counts.shut_down) = (fired, cancelled, shut_down);
        counts.callbacks = 9;
        counts.panics = 2;
        counts
    }

    /// Books that balance.
    fn even() -> (Tally, Rest) {
        let tally = Tally::new();
        for (what, n) in [
            (Count::Armed, 10),
            (Count::Fired, 5),
            (Count::Cancelled, 2),
            (Count::ShutDown, 3),
            (Count::Made, 7),
            (Count::Dropped, 7),
            (Count::Runs, 9),
            (Count::Panics, 2),
        ] {
            tally.add(what, n);
        }
        let rest = Rest {
            lasting: 3,
            pending: 3,
            garbage_share: 0.2,
            resting: counts(12, 7, 2, 0),
            total: counts(12, 7, 2, 3),
            fds: [5, 5],
            threads: [1, 1],
            ..Rest::default()
        };
        (tally, rest)
    }

    fn verdict_on(tally: &Tally, rest: &Rest) -> Vec<&'static str> {
        failed(&exact(tally, rest, &[]))
    }

    #[test]
    fn books_that_balance_pass() {
        let (tally, rest) = even();
        assert_eq!(verdict_on(&tally, &rest), [""; 0]);
    }

    #[test]
    fn a_count_that_is_off_by_one_is_found() {
        for (what, name) in [
            (Count::Armed, "timers end once"),
            (Count::Fired, "timers end once"),
            (Count::Cancelled, "timers end once"),
            (Count::ShutDown, "timers end once"),
            (Count::Made, "callbacks are dropped"),
            (Count::Dropped, "callbacks are dropped"),
            (Count::Runs, "the runtime counts alike: runs"),
            (Count::Panics, "the runtime counts alike: panics"),
        ] {
            let (tally, rest) = even();
            tally.count(what);
            assert_eq!(verdict_on(&tally, &rest), [name], "{what:?}");
        }
        type Change = fn(&mut Rest);
        let changes: [(Change, &str); 12] = [
            (|it| it.lost = 1, "timers end once"),
            (|it| it.pending += 1, "only what lasts is pending at rest"),
            (|it| it.tasks = 1, "no task is left at rest"),
            (
                |it| it.garbage_share = 1.1,
                "garbage is within its bound at rest",
            ),
            (
                |it| it.total.armed_remote += 1,
                "the runtime's counters balance",
            ),
            (|it| it.total.fired += 1, "the runtime's counters balance"),
            (
                |it| it.total.cancelled -= 1,
                "the runtime's counters balance",
            ),
            (|it| it.workers = 1, "the runtime's counters balance"),
            (
                |it| it.resting.callbacks -= 1,
                "the runtime counts alike: runs",
            ),
            (
                |it| it.resting.panics += 1,
                "the runtime counts alike: panics",
            ),
            (|it| it.fds[1] += 1, "descriptors are as before"),
            (|it| it.threads[1] += 1, "threads are as before"),
        ];
        for (change, name) in changes {
            let (tally, mut rest) = even();
            change(&mut rest);
            assert_eq!(verdict_on(&tally, &rest), [name]);
        }
        let (tally, mut rest) = even();
        (rest.total.shut_down, rest.total.fired) = (2, 8);
        assert_eq!(verdict_on(&tally, &rest), ["the shutdown ends what lasts"]);
    }

    #[test]
    fn a_run_that_did_nothing_does_not_pass() {
        // Those that last are always there.
        let tally = Tally::new();
        (0..2).for_each(|_| tally.count(Count::Armed));
        (0..2).for_each(|_| tally.count(Count::ShutDown));
        let mut rest = Rest {
            lasting: 2,
            pending: 2,
            resting: Counts::default(),
            ..even().1
        };
        rest.total = Counts::default();
        (rest.total.armed_local, rest.total.shut_down) = (2, 2);
        assert_eq!(verdict_on(&tally, &rest), ["timers end once"]);
    }

    #[test]
    fn a_fault_is_a_failure() {
        let (tally, rest) = even();
        let fault = Fault {
            what: "a timer ran early",
            times: 2,
            first: "by 3 ns".into(),
        };
        let checks = exact(&tally, &rest, std::slice::from_ref(&fault));
        assert_eq!(failed(&checks), ["no fault was noted"]);
        assert_eq!(checks[1].detail, "2 faults of 1 kind");
        let once = Fault { times: 1, ..fault };
        let checks = exact(&tally, &rest, &[once]);
        assert_eq!(checks[1].detail, "1 fault of 1 kind");
    }
}
