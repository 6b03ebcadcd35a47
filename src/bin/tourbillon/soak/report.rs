//! What came of it, as a table and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{judge::Check, tally::Fault, watch::Window};
use crate::figures::grouped;

/// How it was asked for, and on what it ran.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) timers: u32,
    pub(super) workers: usize,
    pub(super) outside: u32,
    /// 0: as many as they can.
    pub(super) rate: u64,
    pub(super) seed: u64,
    pub(super) store: String,
    /// In s.
    pub(super) duration: f64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether all that was judged passed.
    pub(super) passed: bool,
    /// Whether there was enough to judge trends by.
    pub(super) trends_judged: bool,
    /// How long it ran, in s.
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) checks: Vec<Check>,
    pub(super) faults: Vec<Fault>,
    /// What the program counted.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// What the runtime did.
    pub(super) runtime: BTreeMap<&'static str, u64>,
    pub(super) windows: Vec<Window>,
}

/// So many windows the table has, of those that there are.
const ROWS: usize = 12;

impl Report {
    /// One object.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists of them are JSON")
    }
}

/// A range of two that may be one.
fn range([from, to]: [usize; 2]) -> String {
    if from == to {
        from.to_string()
    } else {
        format!("{from}-{to}")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>9} {:>9} {:>7} {:>7} {:>9} {:>9} {:>11} {:>11} {:>12} {:>12}",
            "at",
            "RSS MB",
            "fds",
            "threads",
            "pending",
            "garbage",
            "armed/s",
            "cancelled/s",
            "late p50 us",
            "late p99 us"
        )?;
        let step = self.windows.len().div_ceil(ROWS).max(1);
        for window in self.windows.iter().skip(step - 1).step_by(step) {
            writeln!(
                f,
                "{:>8.0}s {:>9.1} {:>7} {:>7} {:>9} {:>9} {:>11} {:>11} {:>12.1} {:>12.1}",
                window.at,
                window.rss as f64 / 1e6,
                range(window.fds),
                range(window.threads),
                window.pending,
                window.garbage[0],
                grouped(window.armed as u64),
                grouped(window.cancelled as u64),
                window.late_us.p50,
                window.late_us.p99,
            )?;
        }
        writeln!(f)?;
        for (name, count) in &self.counts {
            writeln!(f, "{:<22}{:>16}", name.replace('_', " "), grouped(*count))?;
        }
        writeln!(f, "{:<22}{:>16.1} s", "time", self.seconds)?;
        writeln!(f, "{:<22}{:>16.1} s", "CPU", self.cpu_seconds)?;
        writeln!(f)?;
        for check in &self.checks {
            let passed = match check.passed {
                Some(true) => "ok",
                Some(false) => "FAILED",
                None => "not judged",
            };
            writeln!(f, "{passed:<11}{:<39}{}", check.name, check.detail)?;
        }
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        let verdict = if self.passed { "passed" } else { "FAILED" };
        writeln!(f, "{verdict}")
    }
}
