//! `tourbillon trace`: puts a trace into words.

use std::{fmt::Write as _, fs::File, io::BufReader, path::PathBuf, process::ExitCode};

use serde::{Deserialize, Serialize};
use tourbillon_flight::CauseTotal;

use crate::{
    arguments::tame,
    figures::{grouped, scaled},
    names::short_names,
    say::{print, shown},
};

/// Arguments of `tourbillon trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace: a file that the program wrote on SIGUSR2 or by `storm --trace`, or that
    /// `tourbillon_flight::write_trace` wrote.
    file: PathBuf,
    /// Number of late timers to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Show names of functions and types as a whole. Otherwise a name is its last two parts, without
    /// parameters.
    #[arg(long)]
    full_names: bool,
}

/// The part of a trace that this command reads.
#[derive(Debug, Deserialize)]
struct Trace {
    tourbillon: Summary,
}

#[derive(Debug, Deserialize)]
struct Summary {
    recording: String,
    workers: u64,
    events: u64,
    late: Vec<Late>,
    causes: Vec<CauseRow>,
    /// Older traces have none.
    #[serde(default)]
    jobs: Vec<JobRow>,
    #[serde(default)]
    stacks: Vec<StackRow>,
}

#[derive(Debug, Deserialize)]
struct Late {
    text: String,
    /// The number of a row of `stacks`, counted from 1.
    stack: Option<u64>,
}

/// What one cause did to the late timers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CauseRow {
    cause: String,
    timers: u64,
    worst_us: f64,
    sum_us: f64,
}

/// What one job did to the late timers.
#[derive(Clone, Debug, Deserialize)]
struct JobRow {
    job: String,
    timers: u64,
    worst_us: f64,
    sum_us: f64,
}

/// Equal stacks of one job that stalled.
#[derive(Clone, Debug, Deserialize)]
struct StackRow {
    job: String,
    times: u64,
    worst_us: f64,
    /// A line for each function, innermost first.
    stack: String,
}

/// The most functions of a stack that are shown.
const FUNCTIONS: usize = 12;

impl From<&CauseTotal> for CauseRow {
    fn from(total: &CauseTotal) -> Self {
        Self {
            cause: total.cause.to_owned(),
            timers: total.timers as u64,
            worst_us: total.worst.as_secs_f64() * 1e6,
            sum_us: total.sum.as_secs_f64() * 1e6,
        }
    }
}

/// Prints the late timers of a trace, and the causes.
pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let path = tame(&args.file);
    let file = File::open(&args.file).map_err(|error| format!("cannot read {path}: {error}"))?;
    let trace: Trace = serde_json::from_reader(BufReader::new(file)).map_err(|error| {
        format!("{path} is no trace that this program can explain: {error}; write one by SIGUSR2")
    })?;
    let text = trace.tourbillon.words(args.top);
    print(if args.full_names {
        text
    } else {
        short_names(&text)
    });
    Ok(ExitCode::SUCCESS)
}

impl Summary {
    fn words(&self, top: usize) -> String {
        let mut text = String::new();
        let (workers, events) = (self.workers, grouped(self.events));
        let late = self.late.len() as u64;
        let _ = writeln!(
            text,
            "workers: {workers}, events: {events} ({} recording), late timers: {}",
            shown(&self.recording),
            grouped(late)
        );
        for late in self.late.iter().take(top) {
            let _ = write!(text, "- {}", shown(&late.text));
            if let Some(stack) = late.stack {
                let _ = write!(text, " (stack {stack})");
            }
            text.push('\n');
        }
        if self.late.len() > top {
            let rest = self.late.len() - top;
            let _ = writeln!(text, "and {} more (--top)", grouped(rest as u64));
        }
        if !self.causes.is_empty() {
            let _ = write!(text, "\n{}", table(&self.causes));
        }
        if !self.jobs.is_empty() {
            // The names come last, since they are long.
            let _ = writeln!(
                text,
                "\n{:>10}{:>12}{:>12}  timers late behind a job",
                "timers", "worst", "sum"
            );
        }
        for row in self.jobs.iter().take(top) {
            let (worst, sum) = (scaled(row.worst_us * 1e3), scaled(row.sum_us * 1e3));
            let (timers, job) = (grouped(row.timers), shown(&row.job));
            let _ = writeln!(text, "{timers:>10}{worst:>12}{sum:>12}  {job}");
        }
        for (i, row) in self.stacks.iter().take(top).enumerate() {
            let (job, worst) = (shown(&row.job), scaled(row.worst_us * 1e3));
            let (number, times) = (i + 1, grouped(row.times));
            let _ = writeln!(
                text,
                "\nstack {number} of {job}, seen {times} times, in stalls of up to {worst}"
            );
            for line in row.stack.lines().take(FUNCTIONS) {
                let _ = writeln!(text, "    {}", shown(line));
            }
            let rest = row.stack.lines().count().saturating_sub(FUNCTIONS);
            if rest > 0 {
                let _ = writeln!(text, "    and {rest} that called them");
            }
        }
        if self.stacks.len() > top {
            let rest = (self.stacks.len() - top) as u64;
            let _ = writeln!(text, "\nand {} more stacks (--top)", grouped(rest));
        }
        text
    }
}

/// Returns a table of causes.
pub(crate) fn table(causes: &[CauseRow]) -> String {
    let mut text = format!(
        "{:<22}{:>10}{:>12}{:>12}\n",
        "cause", "timers", "worst", "sum"
    );
    for row in causes {
        let (worst, sum) = (scaled(row.worst_us * 1e3), scaled(row.sum_us * 1e3));
        let (cause, timers) = (shown(&row.cause).to_string(), grouped(row.timers));
        let _ = writeln!(text, "{cause:<22}{timers:>10}{worst:>12}{sum:>12}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_put_into_words() {
        let text = r#"{
            "traceEvents": [],
            "tourbillon": {
                "recording": "light", "workers": 2, "events": 1234,
                "late": [{ "text": "first", "stack": 1, "spans": [] }, { "text": "second", "spans": [] }],
                "causes": [
                    { "cause": "stuck-in-job", "timers": 2, "worst_us": 4000, "sum_us": 5000.5 }
                ],
                "jobs": [
                    { "job": "task a::parse (spawned at src/main.rs:3:5)", "timers": 2,
                      "worst_us": 4000, "sum_us": 5000.5 }
                ],
                "stacks": [
                    { "job": "task a::parse", "times": 3, "worst_us": 312000,
                      "stack": "a::sum at src/a.rs:7\na::parse" }
                ]
            }
        }"#;
        let trace: Trace = serde_json::from_str(text).unwrap();
        let expected = "\
            workers: 2, events: 1,234 (light recording), late timers: 2\n\
            - first (stack 1)\n\
            and 1 more (--top)\n\
            \n\
            cause                     timers       worst         sum\n\
            stuck-in-job                   2     4.00 ms     5.00 ms\n\
            \n\
            \x20   timers       worst         sum  timers late behind a job\n\
            \x20        2     4.00 ms     5.00 ms  task a::parse (spawned at src/main.rs:3:5)\n\
            \n\
            stack 1 of task a::parse, seen 3 times, in stalls of up to 312 ms\n\
            \x20   a::sum at src/a.rs:7\n\
            \x20   a::parse\n";
        assert_eq!(trace.tourbillon.words(1), expected);
    }
}
