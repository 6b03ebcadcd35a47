//! The soak: that it finds nothing wrong, that it did what it says, and that it ends when it is told to.

mod clients;
mod common;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use clients::tourbillon;
use common::{PATIENCE, alarm};
use serde_json::Value;

fn soak(args: &[&str]) -> Output {
    tourbillon().arg("soak").args(args).output().unwrap()
}

/// A soak that has to pass, as JSON.
fn report(args: &[&str]) -> Value {
    let output = soak(&[args, &["--format", "json"]].concat());
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out} {err}");
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(&out).unwrap()
}

#[track_caller]
fn count(report: &Value, name: &str) -> u64 {
    let count = report["counts"][name].as_u64();
    count.unwrap_or_else(|| panic!("{name} is no count: {report}"))
}

/// The names of the checks that were judged; that all of them passed.
fn passed(report: &Value) -> Vec<&str> {
    assert_eq!(report["passed"], true, "{report}");
    assert_eq!(report["faults"].as_array().unwrap().len(), 0, "{report}");
    let checks = report["checks"].as_array().unwrap().iter();
    let judged = checks.filter(|check| !check["passed"].is_null());
    let names = judged.map(|check| {
        assert_eq!(check["passed"], true, "{report}");
        check["name"].as_str().unwrap()
    });
    names.collect()
}

/// What a soak does at the least, if the machine lets it.
const DONE: [(&str, u64); 15] = [
    ("armed_by_callbacks", 100),
    ("armed_by_tasks", 100),
    ("armed_by_threads", 100),
    ("moved", 100),
    ("sleeps", 1),
    ("timeouts", 1),
    ("aborted", 1),
    ("named", 1),
    ("recurring", 1),
    ("blocking_jobs", 1),
    ("echoes", 1),
    ("read_timeouts", 1),
    ("workers_blocked", 1),
    ("runtimes_beside", 2),
    ("panics", 1),
];

#[test]
fn a_soak_finds_nothing_and_did_all_that_it_says() {
    let _alarm = alarm();
    let args = ["--workers", "2", "--timers", "5k", "--beside", "500ms"];
    let run = |seconds| report(&[&args[..], &["--duration", seconds]].concat());
    let missing = |report: &Value| {
        let missing = DONE
            .iter()
            .find(|(name, least)| count(report, name) < *least);
        missing.map(|(name, _)| *name)
    };
    // On a machine that has other things to do less comes of the same time.
    let mut report = run("4s");
    if missing(&report).is_some() {
        report = run("25s");
    }
    assert_eq!(missing(&report), None, "{report}");
    let names = passed(&report);
    for name in [
        "timers end once",
        "the runtime's counters balance",
        "descriptors are as before",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    // Too short for trends, and it says so.
    assert!(!names.contains(&"memory does not grow"), "{names:?}");
    assert_eq!(report["trends_judged"], false);
    let ends = ["fired", "cancelled", "shut_down"].map(|name| count(&report, name));
    assert_eq!(count(&report, "armed"), ends.iter().sum::<u64>());
    assert!(report["runtime"]["rescued_timers"].as_u64().is_some());
    let windows = report["windows"].as_array().unwrap();
    assert!((2..=12).contains(&windows.len()), "{report}");
    let mut last = 0.0;
    for window in windows {
        let at = window["at"].as_f64().unwrap();
        assert!(at > last, "{window}");
        last = at;
        assert!(window["rss"].as_u64().unwrap() > 1_000_000, "{window}");
        let fds = window["fds"][0].as_u64().unwrap();
        assert!((10..1_000).contains(&fds), "{window}");
        let late = ["p50", "p99", "max"].map(|q| window["late_us"][q].as_f64().unwrap());
        assert!(late.is_sorted() && late[2] > 0.0, "{window}");
        assert!(window["armed"].as_f64().unwrap() > 0.0, "{window}");
    }
}

#[test]
fn one_worker_nobody_outside_and_any_store() {
    let _alarm = alarm();
    for store in ["heap", "wheel", "lanes"] {
        let args = [
            "--duration",
            "1s",
            "--workers",
            "1",
            "--threads",
            "0",
            "--timers",
            "500",
        ];
        let report = report(&[&args[..], &["--store", store]].concat());
        passed(&report);
        assert_eq!(report["store"], store);
        assert_eq!(count(&report, "armed_by_threads"), 0);
        assert!(count(&report, "armed") > 500, "{report}");
    }
}

#[test]
fn threads_keep_to_the_rate() {
    let _alarm = alarm();
    let args = [
        "--duration",
        "2s",
        "--workers",
        "2",
        "--timers",
        "1",
        "--threads",
        "3",
    ];
    let report = report(&[&args[..], &["--rate", "100"]].concat());
    passed(&report);
    // What the threads did: of the batch of each, which comes first, and of what is left of two seconds. At full rate it
    // is thousands.
    let most = 3 * 64 + 3 * 64;
    assert!(count(&report, "armed_by_threads") <= most, "{report}");
}

/// That what was told to run for an hour ends when the signal comes, with all its checks.
#[test]
fn a_signal_ends_it_early_with_the_same_checks() {
    let _alarm = alarm();
    let file = std::env::temp_dir().join(format!("tourbillon-soak-{}.json", std::process::id()));
    let mut child = tourbillon()
        .args([
            "soak",
            "--duration",
            "1h",
            "--timers",
            "1k",
            "--inspect",
            "127.0.0.1:0",
        ])
        .arg("--report")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("inspect: http://"), "{line}");
    thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(start.elapsed() < 2 * PATIENCE);
    for row in ["armed ", "ok         timers end once", "passed"] {
        assert!(
            out.lines().any(|line| line.starts_with(row)),
            "{row}: {out}"
        );
    }
    let written = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let report: Value = serde_json::from_str(&written).unwrap();
    passed(&report);
    assert_eq!(report["duration"], 3_600.0);
    assert!(report["seconds"].as_f64().unwrap() < 3_000.0);
}

#[test]
fn what_cannot_be_is_refused() {
    for (args, hint) in [
        (&["--duration", "0s"][..], "more than zero"),
        (&["--duration", "5"], "unit"),
        (&["--timers", "0"], "at least 1"),
        (&["--store", "tree"], "wheel"),
        (&["--threads", "1025"], "--threads"),
        (&["--rate", "fast"], "--rate"),
        (&["--workers", "0"], "--workers"),
        (&["--colour"], "--colour"),
    ] {
        let output = soak(args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(hint), "{args:?}: {err}");
        assert!(output.stdout.is_empty());
    }
    let output = soak(&["--report", "/there/is/no/such/directory"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot write /there/is"), "{err}");
}
