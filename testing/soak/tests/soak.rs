//! The soak finds no errors, does all that it reports, and ends when a signal asks it to.
//!
//! These tests have no alarm: on a busy machine the program may wait for minutes, and it has a
//! watchdog of its own.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use tourbillon_support::{
    clients::output::{HOSTILE, complains_tame, fails_if_output_is_lost},
    unix::Dir,
};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tourbillon-soak"))
}

fn soak(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

/// Runs a soak that has to pass. Returns its report.
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

/// Checks that the soak and all of its checks passed. Returns the names of the checks that were
/// judged.
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

/// The counts that a soak reaches if the machine is fast enough.
const DONE: [&str; 15] = [
    "armed_by_callbacks",
    "armed_by_tasks",
    "armed_by_threads",
    "moved",
    "sleeps",
    "timeouts",
    "aborted",
    "named",
    "recurring",
    "blocking_jobs",
    "echoes",
    "read_timeouts",
    "workers_blocked",
    "runtimes_beside",
    "panics",
];

/// Returns the first of these counts that is zero, or what is missing in the windows.
fn missing(report: &Value) -> Option<&'static str> {
    let windows = report["windows"].as_array().unwrap();
    let sum = |number: fn(&Value) -> &Value| {
        let numbers = windows.iter().map(|it| number(it).as_f64().unwrap());
        numbers.sum::<f64>()
    };
    let missing = DONE.into_iter().find(|name| count(report, name) == 0);
    missing
        .or((windows.len() < 2).then_some("windows"))
        .or((sum(|it| &it["armed"]) == 0.0).then_some("timers in windows"))
        .or((sum(|it| &it["late_us"]["max"]) == 0.0).then_some("lateness in windows"))
}

#[test]
fn a_soak_passes_all_of_its_checks() {
    let args = ["--workers", "2", "--timers", "5k", "--beside", "500ms"];
    let run = |seconds| report(&[&args[..], &["--duration", seconds]].concat());
    // On a busy machine, a soak does less in the same time. So try again for longer.
    let mut report = run("4s");
    for longer in ["15s", "30s"] {
        if missing(&report).is_some() {
            report = run(longer);
        }
    }
    assert_eq!(missing(&report), None, "{report}");
    let names = passed(&report);
    for name in [
        "timers end once",
        "no fault was noted",
        "the runtime's counters balance",
        "descriptors are as before",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    // The soak is too short to judge trends, and says so.
    assert!(!names.contains(&"memory does not grow"), "{names:?}");
    assert_eq!(report["trends_judged"], false);
    let ends = ["fired", "cancelled", "shut_down"].map(|name| count(&report, name));
    assert_eq!(count(&report, "armed"), ends.iter().sum::<u64>());
    assert!(report["runtime"]["rescued_timers"].as_u64().is_some());
    let windows = report["windows"].as_array().unwrap();
    assert!(windows.len() <= 12, "{report}");
    let mut last = 0.0;
    for window in windows {
        let at = window["at"].as_f64().unwrap();
        assert!(at > last, "{window}");
        last = at;
        assert!(window["rss"].as_u64().unwrap() > 1_000_000, "{window}");
        let fds = window["fds"][0].as_u64().unwrap();
        assert!((10..1_000).contains(&fds), "{window}");
        let late = ["p50", "p99", "max"].map(|q| window["late_us"][q].as_f64().unwrap());
        assert!(late.is_sorted(), "{window}");
    }
}

#[test]
fn a_soak_runs_on_one_worker_with_any_store() {
    for store in ["heap", "wheel"] {
        let args = [
            "--duration",
            "1s",
            "--workers",
            "1",
            "--outside",
            "0",
            "--timers",
            "500",
        ];
        let report = report(&[&args[..], &["--store", store]].concat());
        passed(&report);
        assert_eq!(report["store"], store);
        assert_eq!(count(&report, "armed_by_threads"), 0);
        assert!(count(&report, "callbacks_made") > 0, "{report}");
    }
}

#[test]
fn threads_keep_to_the_rate() {
    let args = ["--duration", "4s", "--workers", "2", "--timers", "20k"];
    let report = report(&[&args[..], &["--outside", "3", "--rate", "30"]].concat());
    passed(&report);
    // Each thread begins with a batch, and then arms what is due. With a batch every half second
    // the count would be four times as high, and at full rate thousands.
    let seconds = report["seconds"].as_f64().unwrap();
    let most = 30.0 * seconds + 64.0 * 3.0;
    assert!(
        count(&report, "armed_by_threads") as f64 <= most,
        "{report}"
    );
}

/// A running soak, which is killed when this is dropped.
struct UnderWay {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl UnderWay {
    /// Starts a soak, and waits until some of its timers have ended.
    fn start(args: &[&str]) -> Self {
        let mut soak = program();
        soak.args(["--duration", "2m", "--inspect", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = soak.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut soak = Self { child, stderr };
        let line = soak.complaint();
        let url = line.trim_end().strip_prefix("inspect: http://");
        let addr = url.map(|url| url.trim_end_matches('/'));
        let addr = addr.unwrap_or_else(|| panic!("{line}"));
        while !has_fired(addr) {
            thread::sleep(Duration::from_millis(10));
        }
        soak
    }

    /// Reads the next line of its stderr.
    fn complaint(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.unwrap().success());
    }

    /// Returns the rest of the output, and the exit status.
    fn end(&mut self) -> (String, ExitStatus) {
        let mut out = String::new();
        let stdout = self.child.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut out).unwrap();
        (out, self.child.wait().unwrap())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether the runtime with this page has run a timer of the ledger, by its metrics.
fn has_fired(addr: &str) -> bool {
    let mut stream = TcpStream::connect(addr).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let runs = metrics
        .lines()
        .filter(|line| line.starts_with("tourbillon_callbacks_total"));
    let runs: Vec<f64> = runs
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(!runs.is_empty(), "{metrics}");
    runs.iter().sum::<f64>() > 100.0
}

/// A signal ends a soak of minutes early, with all of its checks.
#[test]
fn a_signal_ends_it_early_with_the_same_checks() {
    let directory = Dir::new();
    let file = directory.path("report.json");
    let path = file.to_str().unwrap();
    let mut soak = UnderWay::start(&["--timers", "1k", "--report", path]);
    soak.signal("-INT");
    let (out, status) = soak.end();
    assert_eq!(status.code(), Some(0), "{out}");
    for row in ["armed ", "ok         timers end once", "passed"] {
        assert!(
            out.lines().any(|line| line.starts_with(row)),
            "{row}: {out}"
        );
    }
    let written = fs::read_to_string(&file).unwrap();
    assert!(!file.with_extension("json.tmp").exists());
    let report: Value = serde_json::from_str(&written).unwrap();
    passed(&report);
    assert_eq!(report["duration"], 120.0);
    assert!(report["seconds"].as_f64().unwrap() < 120.0);
}

/// A second Ctrl-C ends the soak at once, even while the soak comes to its end.
#[test]
fn a_second_signal_ends_it_at_once() {
    // The soak may end before it receives the second signal.
    let ended_at_once = (0..10).any(|_| {
        let mut soak = UnderWay::start(&["--timers", "50k"]);
        soak.signal("-INT");
        let line = soak.complaint();
        assert!(line.starts_with("stopping; press Ctrl-C again"), "{line}");
        soak.signal("-INT");
        let (out, status) = soak.end();
        assert!(matches!(status.code(), Some(0 | 130)), "{status} {out}");
        status.code() == Some(130)
    });
    assert!(ended_at_once);
}

/// A report that cannot be written to the file is not lost: the soak prints it before.
#[test]
fn a_report_that_cannot_be_written_is_printed() {
    let directory = Dir::new();
    let dir = directory.path("report.dir");
    fs::create_dir(&dir).unwrap();
    let path = dir.to_str().unwrap();
    let output = soak(&["--duration", "500ms", "--timers", "500", "--report", path]);
    let (out, err) = (output.stdout, output.stderr);
    let (out, err) = [out, err].map(|it| String::from_utf8(it).unwrap()).into();
    assert_eq!(output.status.code(), Some(1), "{out} {err}");
    assert!(out.ends_with("passed\n"), "{out} {err}");
    assert!(err.contains("cannot write"), "{out} {err}");
    let left = dir.with_extension("dir.tmp");
    assert!(!left.exists(), "{}", left.display());
}

#[test]
fn invalid_arguments_are_refused() {
    for (args, hint) in [
        (&["--duration", "0s"][..], "more than zero"),
        (&["--duration", "5"], "unit"),
        (&["--timers", "0"], "at least 1"),
        (&["--store", "tree"], "wheel"),
        (&["--outside", "1025"], "--outside"),
        (&["--rate", "fast"], "whole number"),
        (&["--workers", "0"], "at least 1 worker"),
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

#[test]
fn a_report_that_is_lost_is_a_failure() {
    let args = ["--duration", "100ms", "--timers", "1k", "--format", "json"];
    fails_if_output_is_lost(program().args(args));
}

#[test]
fn arguments_and_names_of_files_are_shown_tame() {
    complains_tame(program().args(["--duration", HOSTILE]));
    // There is no such directory.
    let directory = Dir::new();
    let absent = directory.path(HOSTILE).join("report.json");
    let args = ["--duration", "100ms", "--timers", "1k", "--report"];
    complains_tame(program().args(args).arg(&absent));
}
