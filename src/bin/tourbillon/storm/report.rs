//! What came of it.

use std::{fmt, process::ExitCode, sync::atomic::Ordering::Relaxed};

use serde::Serialize;
use tourbillon::metrics::Counts;

use super::{
    lanes,
    ledger::{Ledger, Verdict},
    meddle::Meddled,
};
use crate::figures::{Lateness, grouped, rounded};

/// What was measured beside the books.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) workers: usize,
    /// From the beginning of the arming until all was over.
    pub(super) seconds: f64,
    /// Of the whole process, with the threads that arm and meddle.
    pub(super) cpu_seconds: f64,
    /// Of the workers alone.
    pub(super) worker_cpu_seconds: f64,
    pub(super) arm_seconds: f64,
    pub(super) bytes_per_timer: f64,
    /// How many timers were pending when that was measured.
    pub(super) measured_timers: u64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// How many were to be armed.
    timers: u64,
    armed: u64,
    fired: u64,
    cancelled: u64,
    refreshed: u64,
    reset: u64,
    /// Of what was done to timers: how often the answer was that they ran, or had run.
    too_late: u64,
    lost: u64,
    duplicated: u64,
    early: u64,
    lateness_us: Lateness,
    #[serde(flatten)]
    measured: Measured,
    /// What each worker armed, of all timers.
    armed_share: Vec<f64>,
    /// What each worker ran, of all that ran.
    fired_share: Vec<f64>,
    steals: u64,
    parks: u64,
    tickles_written: u64,
    tickles_skipped: u64,
}

impl Report {
    /// Closes the books. For when nobody writes them any more.
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
            steals: counts.steal_operations,
            parks: counts.parks,
            tickles_written: counts.tickles_written,
            tickles_skipped: counts.tickles_skipped,
        }
    }

    /// One object.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and lists of them are JSON")
    }

    /// Success, unless a timer did what none may do, or who arms them was lost.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.lost + self.duplicated + self.early == 0 && self.armed == self.timers {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Percentages, one after the other.
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
            row(name, &format_args!("{micros:>14.1} us"))?;
        }
        let Measured {
            workers,
            seconds,
            cpu_seconds,
            worker_cpu_seconds,
            arm_seconds,
            bytes_per_timer,
            measured_timers,
        } = self.measured;
        row("time", &format_args!("{seconds:>14.2} s"))?;
        row("CPU", &format_args!("{cpu_seconds:>14.2} s"))?;
        row(
            "CPU of the workers",
            &format_args!("{worker_cpu_seconds:>14.2} s"),
        )?;
        row("arming", &format_args!("{arm_seconds:>14.2} s"))?;
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
            ("tickles written", self.tickles_written),
            ("tickles skipped", self.tickles_skipped),
        ] {
            row(name, &format_args!("{:>14}", grouped(count)))?;
        }
        Ok(())
    }
}
