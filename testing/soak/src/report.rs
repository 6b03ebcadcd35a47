//! The report, as a table and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use tourbillon_cli::figures::{grouped, scaled};

use super::{judge::Check, tally::Fault, watch::Window};

/// The end of `tourbillon-soak --help`.
pub(super) const HELP: &str = "\
The report starts with a table of windows, with these columns:
  at              end of the window, from the start
  RSS MB          resident memory of the process
  fds, threads    open descriptors and threads, fewest-most
  pending         timers that wait (median)
  garbage         cancelled timers that are still in their stores (median)
  armed/s         timers armed per second
  cancelled/s     timers cancelled per second
  late p50, p99   time from deadline to callback, of 50 % and 99 % of the timers
Then it lists the program's counters and the checks: ok, FAILED, or not judged if the
run was too short. The last line is the verdict: passed or FAILED.";

/// The parameters of the run.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) timers: u32,
    pub(super) workers: usize,
    pub(super) outside: u32,
    /// Operations per second of the outside threads; 0 means no limit.
    pub(super) rate: u64,
    pub(super) seed: u64,
    pub(super) store: String,
    /// In seconds.
    pub(super) duration: f64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether all judged checks passed.
    pub(super) passed: bool,
    /// Whether the run was long enough to judge growth.
    pub(super) trends_judged: bool,
    /// Duration, in seconds.
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) checks: Vec<Check>,
    pub(super) faults: Vec<Fault>,
    /// The program's counters.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// The runtime's counters.
    pub(super) runtime: BTreeMap<&'static str, u64>,
    pub(super) windows: Vec<Window>,
}

/// Maximum number of windows in the table.
const ROWS: usize = 12;

impl Report {
    /// Returns the report as one line of JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists of them are JSON")
    }
}

/// Formats a range, or one number if both ends are equal.
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
            "{:>9} {:>9} {:>7} {:>7} {:>9} {:>9} {:>11} {:>11} {:>9} {:>9}",
            "at",
            "RSS MB",
            "fds",
            "threads",
            "pending",
            "garbage",
            "armed/s",
            "cancelled/s",
            "late p50",
            "late p99"
        )?;
        let step = self.windows.len().div_ceil(ROWS).max(1);
        for window in self.windows.iter().skip(step - 1).step_by(step) {
            writeln!(
                f,
                "{:>8.0}s {:>9.1} {:>7} {:>7} {:>9} {:>9} {:>11} {:>11} {:>9} {:>9}",
                window.at,
                window.rss as f64 / 1e6,
                range(window.fds),
                range(window.threads),
                window.pending,
                window.garbage[0],
                grouped(window.armed as u64),
                grouped(window.cancelled as u64),
                scaled(window.late_us.p50 * 1e3),
                scaled(window.late_us.p99 * 1e3),
            )?;
        }
        writeln!(f)?;
        for (name, count) in &self.counts {
            writeln!(f, "{:<22}{:>16}", name.replace('_', " "), grouped(*count))?;
        }
        writeln!(f, "{:<22}{:>16}", "time", scaled(self.seconds * 1e9))?;
        writeln!(f, "{:<22}{:>16}", "CPU", scaled(self.cpu_seconds * 1e9))?;
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
