//! `tourbillon storm`: it finds nothing wrong, and reports it as documented.

use std::process::{Command, Output};

use serde_json::Value;

use crate::common::eventually;

fn storm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tourbillon"))
        .arg("storm")
        .args(args)
        .output()
        .unwrap()
}

/// Runs a storm that has to succeed. Returns its report.
fn report(args: &[&str]) -> Value {
    let output = storm(&[args, &["--format", "json"]].concat());
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out} {err}");
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(&out).unwrap()
}

fn count(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} is no count: {report}"))
}

fn number(value: &Value, name: &str) -> f64 {
    value[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} is no number: {value}"))
}

#[test]
fn a_storm_loses_nothing_and_accounts_for_all() {
    let report = report(&["--timers", "20k", "--spread", "1s", "--workers", "2"]);
    assert_eq!(count(&report, "armed"), 20_000);
    for wrong in ["lost", "duplicated", "early"] {
        assert_eq!(count(&report, wrong), 0, "{report}");
    }
    let ended = count(&report, "fired") + count(&report, "cancelled");
    assert_eq!(ended, 20_000, "{report}");
    // Of the 10 % for each, some operations come too late, but not all.
    for done in ["cancelled", "refreshed", "reset"] {
        let done = count(&report, done);
        assert!((1..4_000).contains(&done), "{report}");
    }
    assert_eq!(count(&report, "workers"), 2);
    assert!(number(&report, "cpu_seconds") > 0.0);
    assert!(number(&report, "bytes_per_timer") > 0.0);
    let lateness = &report["lateness_us"];
    let late: Vec<_> = ["p50", "p99", "p999", "max"]
        .map(|q| number(lateness, q))
        .into();
    assert!(late.is_sorted() && late[0] > 0.0, "{report}");
    let shares = report["fired_share"].as_array().unwrap();
    let sum: f64 = shares.iter().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 0.01, "{report}");
    let others: Vec<_> = ["stolen", "other_load"]
        .map(|share| number(&report, share))
        .into();
    assert!(
        others.iter().all(|share| (0.0..=1.0).contains(share)),
        "{report}"
    );
    let _: u64 = count(&report, "preempted");
    // The report has the shares with four decimal places.
    let lost = others.iter().sum::<f64>();
    if (lost - 0.03).abs() > 0.001 {
        assert_eq!(report["disturbed"], lost > 0.03, "{report}");
    }
}

#[test]
fn a_storm_runs_on_one_worker_without_remote_threads() {
    let args = ["--timers", "5k", "--spread", "200ms", "--workers", "1"];
    let report = report(&[&args[..], &["--outside", "0", "--meddlers", "1"]].concat());
    assert_eq!(count(&report, "armed"), 5_000);
    assert_eq!(number(&report, "lost"), 0.0, "{report}");
}

#[test]
fn the_options_set_the_budget_for_wake_ups() {
    let deferred = |option: &[&str]| {
        let storm = ["--timers", "10k", "--spread", "500ms", "--workers", "1"];
        count(&report(&[&storm[..], option].concat()), "deferred_wakes")
    };
    assert_eq!(deferred(&["--exact"]), 0);
    eventually("a wake-up is deferred", || {
        deferred(&["--budget", "1e-9"]) > 0
    });
}

#[test]
fn a_storm_runs_with_more_threads_than_cores() {
    let args = ["--timers", "20k", "--spread", "500ms", "--workers", "8"];
    let all = [
        "--outside",
        "8",
        "--meddlers",
        "8",
        "--cancel",
        "40",
        "--reset",
        "60",
        "--refresh",
        "0",
    ];
    let report = report(&[&args[..], &all].concat());
    assert_eq!(count(&report, "armed"), 20_000);
    assert_eq!(count(&report, "refreshed"), 0);
}

#[test]
fn a_storm_of_a_single_timer_runs() {
    let report = report(&["--timers", "1", "--spread", "1ms", "--cancel", "0"]);
    assert_eq!(count(&report, "fired"), 1);
    assert_eq!(count(&report, "cancelled"), 0);
}

#[test]
fn deadlines_that_pass_while_arming_are_not_lost() {
    let report = report(&["--timers", "50k", "--spread", "10ms", "--lead", "0s"]);
    assert_eq!(count(&report, "armed"), 50_000);
}

#[test]
fn the_table_has_all_rows() {
    let output = storm(&["--timers", "5k", "--spread", "200ms"]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}");
    let rows = [
        "armed ",
        "fired ",
        "cancelled ",
        "lost ",
        "duplicated ",
        "fired too early ",
        "lateness p50 ",
        "lateness p99 ",
        "lateness p99.9 ",
        "lateness max ",
        "CPU ",
        "memory per timer ",
        "run by each ",
        "steals ",
        "deferred wake-ups ",
        "tickles written ",
        "tickles skipped ",
    ];
    for row in rows {
        assert!(
            out.lines().any(|line| line.starts_with(row)),
            "{row}: {out}"
        );
    }
    // The progress bar is drawn on terminals only.
    assert!(output.stderr.is_empty());
}

#[test]
fn the_table_ends_with_a_verdict_and_has_scaled_units() {
    let output = storm(&["--timers", "5k", "--spread", "200ms"]);
    let out = String::from_utf8(output.stdout).unwrap();
    let verdict = "\n\nAll 5,000 timers ended exactly once. None fired early.\n";
    assert!(out.ends_with(verdict), "{out}");
    // The line above it has what else the machine did.
    let machine = out.lines().rev().nth(2).unwrap();
    for figure in ["stolen ", "other load ", "preempted "] {
        assert!(machine.contains(figure), "{out}");
    }
    for row in ["lateness p50 ", "lateness max ", "time ", "CPU ", "arming "] {
        let line = out.lines().find(|line| line.starts_with(row));
        let line = line.unwrap_or_else(|| panic!("{row}: {out}"));
        let words: Vec<_> = line.split_whitespace().collect();
        let [.., number, unit] = words[..] else {
            panic!("{line}");
        };
        assert!(["ns", "µs", "ms", "s"].contains(&unit), "{line}");
        // Three digits. A time of 1000 s would need four, but no storm here lasts that long.
        assert!(number.parse::<f64>().unwrap() < 1_000.0, "{line}");
    }
}

#[test]
fn the_long_help_explains_the_rows_of_the_report() {
    let output = storm(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    let report = storm(&["--timers", "1", "--spread", "1ms"]).stdout;
    let report = String::from_utf8(report).unwrap();
    for line in report.lines().take_while(|line| !line.is_empty()) {
        // A row's name has 22 columns.
        let name = line[..22].trim_end();
        let first = name.split(' ').next().unwrap();
        let key = match first {
            "lateness" | "refreshed" => first,
            "reset" => "refreshed, reset",
            _ => name,
        };
        let explained = help
            .lines()
            .any(|line| line.starts_with(&format!("  {key}")));
        assert!(explained, "{key}: {help}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for (args, hint) in [
        (&["--timers", "0"][..], "at least 1"),
        (&["--timers", "many"], "20k"),
        (&["--timers", "1", "--spread", "5"], "unit"),
        (&["--cancel", "101"], "--cancel"),
        (&["--cancel", "50", "--reset", "45"], "at most 100 %"),
        (&["--format", "xml"], "json"),
        (&["--meddlers", "0"], "1..=1024"),
        (&["--workers", "0"], "at least 1 worker"),
        (&["--budget", "1.5"], "above 0 and at most 1"),
        (&["--exact", "--budget", "0.1"], "cannot be used with"),
        (&["--seed", "x"], "whole number"),
        (&["--colour"], "--colour"),
    ] {
        let output = storm(args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(hint), "{args:?}: {err}");
        assert!(output.stdout.is_empty());
    }
}
