use tourbillon_cli::figures::Lateness;

use super::*;

/// Returns a run of 60 windows of 5 s in which nothing grows, with some noise.
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

/// Returns the names of the checks that failed.
fn failed(checks: &[Check]) -> Vec<&'static str> {
    let failed = checks.iter().filter(|check| check.passed == Some(false));
    failed.map(|check| check.name).collect()
}

/// Changes each window of a steady run, and returns the failed checks.
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
fn steady_growth_is_found() {
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
        (it.armed, it.cancelled) = (it.armed / (1.0 + i as f64), it.cancelled / (1.0 + i as f64));
    };
    assert_eq!(verdict(slower), ["timers cost the same"]);
    assert_eq!(
        verdict(|_, it| it.garbage_share = 1.2),
        ["garbage is within its bound"]
    );
}

#[test]
fn noise_of_a_busy_machine_is_no_growth() {
    // A warm-up with more or less memory.
    assert_eq!(
        verdict(|i, it| it.rss += if i < 6 { 90_000_000 } else { 0 }),
        [""; 0]
    );
    assert_eq!(
        verdict(|i, it| it.rss -= if i < 6 { 30_000_000 } else { 0 }),
        [""; 0]
    );
    // Other processes take the CPU for a quarter of the run.
    let starved = |i: usize, it: &mut Window| {
        if i >= 45 {
            it.late_us.p50 += 1_000_000.0;
            it.armed /= 5.0;
            it.cancelled /= 5.0;
            it.cpu_seconds /= 5.0;
        }
    };
    assert_eq!(verdict(starved), [""; 0]);
    // One extreme window.
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

fn counts(armed: u64, fired: u64, cancelled: u64, shut_down: u64) -> Totals {
    Totals {
        armed,
        over: fired + cancelled + shut_down,
        fired,
        cancelled,
        shut_down,
        callbacks: 9,
        panics: 2,
    }
}

/// Returns counts that balance.
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
fn balanced_counts_pass() {
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
        (|it| it.total.armed += 1, "the runtime's counters balance"),
        (|it| it.total.over += 1, "the runtime's counters balance"),
        (|it| it.total.over -= 1, "the runtime's counters balance"),
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
fn a_run_without_timers_fails() {
    // The long timers exist in every run.
    let tally = Tally::new();
    (0..2).for_each(|_| tally.count(Count::Armed));
    (0..2).for_each(|_| tally.count(Count::ShutDown));
    let mut rest = Rest {
        lasting: 2,
        pending: 2,
        resting: Totals::default(),
        ..even().1
    };
    rest.total = Totals {
        armed: 2,
        over: 2,
        shut_down: 2,
        ..Totals::default()
    };
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
