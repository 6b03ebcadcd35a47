//! The report.

use std::{fmt, process::ExitCode, sync::atomic::Ordering::Relaxed};

use serde::Serialize;
use tourbillon::metrics::Counts;
use tourbillon_flight::CauseTotal;

use super::{
    lanes,
    ledger::{Ledger, Verdict},
    meddle::Meddled,
};
use crate::{
    disturbance::Disturbance,
    figures::{Lateness, grouped, rounded, scaled},
    trace::{CauseRow, table},
};

/// The end of `storm --help`.
pub(super) const HELP: &str = "\
Rows of the report:
  timers              timers to arm (--timers)
  armed               timers that were armed
  fired               timers whose callbacks ran
  cancelled           timers that were cancelled in time
  refreshed, reset    timers that were moved in time
  too late to meddle  cancels, refreshes and resets that came after the timer ended
  lost                timers that neither fired nor were cancelled; must be 0
  duplicated          timers that ended more than once; must be 0
  fired too early     timers that fired before their deadlines; must be 0
  lateness            time from a timer's deadline to its callback: p50, p99 and p99.9 are
                      the values that 50 %, 99 % and 99.9 % of the timers do not exceed
  time                from the first arming to the last end
  CPU                 CPU time of the whole process in that time
  CPU of the workers  CPU time of the runtime's workers alone
  arming              time to arm the early timers (15 of 16)
  memory per timer    growth of the process by arming, divided by the pending timers
  workers             worker threads of the runtime
  armed by each       share of the timers that each worker armed; outside threads armed the rest
  run by each         share of the callbacks that each worker ran
  steals              times a worker took jobs from another worker's queue
  parks               times a worker went to sleep
  deferred wake-ups   sleeps past a deadline, because the worker had spent its budget (--budget)
  tickles written     times a thread woke a sleeping worker by a write to its eventfd
  tickles skipped     updates from other threads that did not need to wake the worker
The second table says why timers were late that the flight recorder saw at the end: how many
timers each cause made late, the longest time for one of them, and the sum. With `--record
light`, the default, these are timers that were late by 200 us or more. A ring that is too
small for the storm has its last part only (--record-events).
The line below the tables says what else the machine did in that time:
  stolen              share of the CPUs' time that the hypervisor gave to other machines
  other load          share of the CPUs' time in which other processes ran
  preempted           times a thread of the storm lost its CPU although it could have gone on
If the first two exceed 3 % together, the storm was disturbed: run it again.
The last line is the verdict. The exit status is 0 if every timer ended exactly once and
none fired early, otherwise 1.";

/// Figures that are measured beside the ledger.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) workers: usize,
    /// From the start of arming to the end.
    pub(super) seconds: f64,
    /// CPU time of the whole process, with the threads that arm and meddle.
    pub(super) cpu_seconds: f64,
    /// CPU time of the workers.
    pub(super) worker_cpu_seconds: f64,
    pub(super) arm_seconds: f64,
    pub(super) bytes_per_timer: f64,
    /// Number of pending timers when memory was measured.
    pub(super) measured_timers: u64,
    #[serde(skip)]
    pub(super) disturbance: Disturbance,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Number of timers that the user asked for.
    timers: u64,
    armed: u64,
    fired: u64,
    cancelled: u64,
    refreshed: u64,
    reset: u64,
    /// Cancels, refreshes and resets that came after the timer ended.
    too_late: u64,
    lost: u64,
    duplicated: u64,
    early: u64,
    lateness_us: Lateness,
    #[serde(flatten)]
    measured: Measured,
    /// Share of all armed timers, per worker.
    armed_share: Vec<f64>,
    /// Share of all fired timers, per worker.
    fired_share: Vec<f64>,
    steals: u64,
    parks: u64,
    deferred_wakes: u64,
    tickles_written: u64,
    tickles_skipped: u64,
    /// Share of the CPUs' time that was stolen; `null` if it is not known.
    stolen: f64,
    /// Share of the CPUs' time in which other processes ran; `null` if it is not known.
    other_load: f64,
    preempted: u64,
    /// Whether others took so much time that the storm should be run again.
    disturbed: bool,
    /// Why recorded timers were late.
    late_by_cause: Vec<CauseRow>,
}

impl Report {
    /// Builds the report, after the last write to the ledger.
    pub(super) fn new(
        timers: u64,
        ledger: &Ledger,
        meddled: &Meddled,
        counts: &Counts,
        measured: Measured,
    ) -> Self {
        let verdict = ledger.verdict();
        let Verdict { armed, fired, .. } = verdict;
        let shares = |parts: Vec<u64>, all: u64| {
            let parts = parts
                .iter()
                .map(|&part| rounded(part as f64 / all.max(1) as f64));
            parts.collect()
        };
        Self {
            timers,
            armed,
            fired,
            cancelled: verdict.cancelled,
            refreshed: meddled.refreshed.load(Relaxed),
            reset: meddled.reset.load(Relaxed),
            too_late: meddled.too_late.load(Relaxed),
            lost: verdict.lost,
            duplicated: verdict.duplicated,
            early: verdict.early,
            lateness_us: Lateness::of(&verdict.lateness),
            measured: Measured {
                seconds: rounded(measured.seconds),
                cpu_seconds: rounded(measured.cpu_seconds),
                worker_cpu_seconds: rounded(measured.worker_cpu_seconds),
                arm_seconds: rounded(measured.arm_seconds),
                bytes_per_timer: rounded(measured.bytes_per_timer),
                ..measured
            },
            armed_share: shares(lanes::by_worker(|lane| &lane.armed), armed),
            fired_share: shares(lanes::by_worker(|lane| &lane.fired), fired),
            steals: counts.steal_operations(),
            parks: counts.parks(),
            deferred_wakes: counts.deferred_wakes(),
            tickles_written: counts.tickles_written(),
            tickles_skipped: counts.tickles_skipped(),
            stolen: rounded(measured.disturbance.stolen()),
            other_load: rounded(measured.disturbance.other_load()),
            preempted: measured.disturbance.preempted,
            disturbed: measured.disturbance.is_disturbed(),
            late_by_cause: Vec::new(),
        }
    }

    /// Adds why the timers were late that the flight recorder has recorded.
    pub(super) fn with_late(self, causes: &[CauseTotal]) -> Self {
        Self {
            late_by_cause: causes.iter().map(CauseRow::from).collect(),
            ..self
        }
    }

    /// Returns the report as one line of JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and lists of them are JSON")
    }

    /// Returns failure if a timer was lost, ended twice, fired early or was not armed.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.is_good() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn is_good(&self) -> bool {
        self.lost + self.duplicated + self.early == 0 && self.armed == self.timers
    }

    /// Returns the last line of the table: success, or each kind of failure with its count.
    fn verdict(&self) -> String {
        let all = grouped(self.timers);
        if self.is_good() {
            return match self.timers {
                1 => "The timer ended exactly once. It did not fire early.".to_owned(),
                _ => format!("All {all} timers ended exactly once. None fired early."),
            };
        }
        let failures = [
            (self.timers - self.armed, "not armed"),
            (self.lost, "lost"),
            (self.duplicated, "ended more than once"),
            (self.early, "fired early"),
        ];
        let failures = failures.iter().filter(|(count, _)| *count > 0);
        let failures = failures.map(|(count, what)| format!("{} {what}", grouped(*count)));
        let failures = failures.collect::<Vec<_>>().join(", ");
        format!("FAILED: of {all} timers, {failures}.")
    }
}

/// Formats shares as percentages.
fn percent(shares: &[f64]) -> String {
    let shares: Vec<_> = shares.iter().map(|s| format!("{:.1}", s * 100.0)).collect();
    shares.join(" ") + " %"
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<22}{value}");
        for (name, count) in [
            ("timers", self.timers),
            ("armed", self.armed),
            ("fired", self.fired),
            ("cancelled", self.cancelled),
            ("refreshed", self.refreshed),
            ("reset", self.reset),
            ("too late to meddle", self.too_late),
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("fired too early", self.early),
        ] {
            row(name, &format_args!("{:>14}", grouped(count)))?;
        }
        for (name, micros) in [
            ("lateness p50", self.lateness_us.p50),
            ("lateness p99", self.lateness_us.p99),
            ("lateness p99.9", self.lateness_us.p999),
            ("lateness max", self.lateness_us.max),
        ] {
            row(name, &format_args!("{:>14}", scaled(micros * 1e3)))?;
        }
        let Measured {
            workers,
            seconds,
            cpu_seconds,
            worker_cpu_seconds,
            arm_seconds,
            bytes_per_timer,
            measured_timers,
            disturbance,
        } = self.measured;
        for (name, seconds) in [
            ("time", seconds),
            ("CPU", cpu_seconds),
            ("CPU of the workers", worker_cpu_seconds),
            ("arming", arm_seconds),
        ] {
            row(name, &format_args!("{:>14}", scaled(seconds * 1e9)))?;
        }
        let pending = grouped(measured_timers);
        let memory = format_args!("{bytes_per_timer:>14.1} bytes, of {pending} pending");
        row("memory per timer", &memory)?;
        row("workers", &format_args!("{workers:>14}"))?;
        row(
            "armed by each",
            &format_args!("{:>14}", percent(&self.armed_share)),
        )?;
        row(
            "run by each",
            &format_args!("{:>14}", percent(&self.fired_share)),
        )?;
        for (name, count) in [
            ("steals", self.steals),
            ("parks", self.parks),
            ("deferred wake-ups", self.deferred_wakes),
            ("tickles written", self.tickles_written),
            ("tickles skipped", self.tickles_skipped),
        ] {
            row(name, &format_args!("{:>14}", grouped(count)))?;
        }
        if !self.late_by_cause.is_empty() {
            write!(f, "\nwhy timers were late:\n{}", table(&self.late_by_cause))?;
        }
        writeln!(f, "\n{disturbance}\n\n{}", self.verdict())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report of a storm of `timers` timers in which all went well.
    fn good(timers: u64) -> Report {
        let measured = Measured {
            workers: 1,
            seconds: 0.0,
            cpu_seconds: 0.0,
            worker_cpu_seconds: 0.0,
            arm_seconds: 0.0,
            bytes_per_timer: 0.0,
            measured_timers: 0,
            disturbance: Disturbance::default(),
        };
        let (meddled, counts) = (Meddled::default(), Counts::default());
        let mut report = Report::new(timers, &Ledger::new(0), &meddled, &counts, measured);
        report.armed = timers;
        report
    }

    #[test]
    fn the_verdict_says_what_went_wrong() {
        let all_well = "All 1,000,000 timers ended exactly once. None fired early.";
        assert_eq!(good(1_000_000).verdict(), all_well);
        let single = "The timer ended exactly once. It did not fire early.";
        assert_eq!(good(1).verdict(), single);
        type Change = fn(&mut Report);
        let changes: [(Change, &str); 5] = [
            (|it| it.armed -= 3, "3 not armed"),
            (|it| it.lost = 1_200, "1,200 lost"),
            (|it| it.duplicated = 1, "1 ended more than once"),
            (|it| it.early = 2, "2 fired early"),
            (|it| (it.lost, it.early) = (1, 2), "1 lost, 2 fired early"),
        ];
        for (change, text) in changes {
            let mut report = good(5_000);
            change(&mut report);
            assert_eq!(
                report.verdict(),
                format!("FAILED: of 5,000 timers, {text}.")
            );
            assert_eq!(report.exit_code(), ExitCode::FAILURE);
        }
    }
}
