//! Compares Tourbillon with its peers on the same workloads, interleaved in one run.
//!
//! Each round runs each workload on each system that supports it, every time in a process of its
//! own. The program prints a table with the measured ratio to each peer beside the target ratio.
//! With `--out` it also writes the table, a short summary, plots, and all figures as JSON.
//!
//! `README.md` lists what each system does in each workload.

mod frame;
mod measure;
mod runtimes;
mod system;
mod timers;
mod workload;
mod workloads;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use rustix::process;
use tourbillon_support::{
    arguments::arguments,
    say::{self, complain, print, say},
};

use frame::{
    brief,
    error::Error,
    plot,
    results::Results,
    rounds::{self, Plan},
    table,
};
use system::System;
use workload::Measured;

/// Runs the workloads on Tourbillon and its peers in turn, and prints a table of the ratios.
///
/// Exits with 1 if a system failed. A system that cannot run here, for lack of io_uring for
/// example, has not failed. Exits with 2 if it stops with an error.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Hidden>,
    /// Number of rounds. Each round runs each workload on each system. The table shows medians.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Workloads to run, such as w1,w3 [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Systems to run, such as tourbillon,tokio.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Do very little work, to check that everything runs. The figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Directory for table.md, brief.txt, results.json and an SVG for each workload.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Time limit for one workload on one system, in seconds. A run that exceeds it has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Maximum number of times that a disturbed round of a workload is repeated, with all its
    /// systems. A round is disturbed if other processes and the hypervisor took more than 3 % of
    /// the processors' time during one of its runs. With --quick, nothing is repeated.
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u16,
}

// The program passes this command to its child processes. Users do not need it.
#[derive(Subcommand)]
enum Hidden {
    /// Run one workload on one system, once, and print the figures as JSON.
    #[command(hide = true)]
    Run {
        workload: String,
        system: System,
        #[arg(long)]
        quick: bool,
    },
}

fn main() -> ExitCode {
    let args: Args = arguments();
    let done = match args.command {
        Some(Hidden::Run {
            workload,
            system,
            quick,
        }) => run(&workload, system, quick),
        None => compare(args),
    };
    let done = done.unwrap_or_else(|error| {
        complain(format_args!("compare: {error}"));
        ExitCode::from(2)
    });
    say::end("compare", Ok::<_, Error>(done))
}

/// Runs one workload on one system in this process, and prints the figures as JSON.
///
/// Ends the process with [`workload::REFUSED`] if the workload does not support the system.
///
/// # Errors
///
/// Returns an error if there is no such workload, or if the figures cannot be encoded.
fn run(workload: &str, system: System, quick: bool) -> Result<ExitCode, Error> {
    // Ctrl-C ends the parent process alone, because this process leads a group of its own.
    let _ = process::set_parent_process_death_signal(Some(process::Signal::KILL));
    let workload = rounds::workloads(&[workload.to_owned()])?[0];
    if !workload.systems.contains(&system) {
        workload::refuse(format_args!(
            "{} cannot do {}",
            system.name(),
            workload.name
        ));
    }
    let figures = (workload.run)(system, quick);
    let figures: Vec<Measured> = figures.into_iter().map(Measured::from).collect();
    say(format_args!(
        "{}",
        serde_json::to_string(&figures).map_err(Error::Encode)?
    ));
    Ok(ExitCode::SUCCESS)
}

/// Runs the comparison, each workload and system in a child process, and prints the table.
///
/// Returns exit code 1 if a system failed, and 0 otherwise.
///
/// # Errors
///
/// Returns an error if a workload is unknown, if there is nothing to run, or if a file cannot be
/// written.
fn compare(args: Args) -> Result<ExitCode, Error> {
    let plan = Plan {
        rounds: args.rounds.into(),
        workloads: rounds::workloads(&args.only)?,
        systems: args.systems,
        quick: args.quick,
        limit: Duration::from_secs(args.limit),
        retries: if args.quick { 0 } else { args.retries.into() },
    };
    // Create the directory first. If this fails, no measurement is lost.
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(|error| Error::Write(dir.clone(), error))?;
    }
    let results = plan.run()?;
    let table = table::markdown(&results);
    print(&table);
    if let Some(dir) = &args.out {
        write_all(dir, &results, &table)?;
    }
    Ok(ExitCode::from(u8::from(results.any_failed())))
}

/// Writes the table, the summary, the results and the plots into `dir`.
fn write_all(dir: &Path, results: &Results, table: &str) -> Result<(), Error> {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| Error::Write(path, error))
    };
    write("table.md", table)?;
    write("brief.txt", &brief::text(results))?;
    let json = serde_json::to_string_pretty(results).map_err(Error::Encode)?;
    write("results.json", &(json + "\n"))?;
    for workload in table::workloads(results) {
        // `None` means that no system produced a figure for this workload.
        if let Some(svg) = plot::svg(results, workload) {
            let name = format!("{workload}.svg");
            let svg = svg.map_err(|error| Error::Plot(dir.join(&name), error))?;
            write(&name, &svg)?;
        }
    }
    Ok(())
}
