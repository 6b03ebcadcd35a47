//! Tourbillon and its peers on the same workloads, interleaved in one run.
//!
//! Each round runs each workload on each system, in a process of its own. Out come a table with the
//! ratios to each peer beside those that are wanted, plots, and all figures as JSON. The page
//! "Benchmarks" of the book says what each workload does on each system.

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

/// Runs the workloads on Tourbillon and its peers, by turns, and shows the ratios.
///
/// Exits with 1 if a system failed. (One that cannot run here, for want of io_uring say, has not.)
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Hidden>,
    /// How often each system does each workload; the table has medians.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// These workloads alone: w1,w3
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// These systems alone: tourbillon,tokio
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Do little, to show that all works; the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Where to write table.md, brief.txt, results.json and an SVG for each workload.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How long one system may take for one workload, in seconds; then it has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// How often to repeat a round of a workload, with all its systems, if others took more than
    /// 3 % of the processors' time during a run. A quick run repeats nothing.
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u16,
}

#[derive(Subcommand)]
enum Hidden {
    /// Runs one workload on one system, once, and prints the figures as JSON.
    #[command(hide = true)]
    Run {
        workload: String,
        system: System,
        #[arg(long)]
        quick: bool,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.command {
        Some(Hidden::Run {
            workload,
            system,
            quick,
        }) => run(&workload, system, quick),
        None => compare(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("compare: {error}");
        ExitCode::from(2)
    })
}

fn run(workload: &str, system: System, quick: bool) -> Result<ExitCode, Error> {
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
    println!(
        "{}",
        serde_json::to_string(&figures).map_err(Error::Encode)?
    );
    Ok(ExitCode::SUCCESS)
}

fn compare(args: Args) -> Result<ExitCode, Error> {
    let plan = Plan {
        rounds: args.rounds.into(),
        workloads: rounds::workloads(&args.only)?,
        systems: args.systems,
        quick: args.quick,
        limit: Duration::from_secs(args.limit),
        retries: if args.quick { 0 } else { args.retries.into() },
    };
    // Before all the work, not after it.
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(|error| Error::Write(dir.clone(), error))?;
    }
    let results = plan.run()?;
    let table = table::markdown(&results);
    print!("{table}");
    if let Some(dir) = &args.out {
        write_all(dir, &results, &table)?;
    }
    Ok(ExitCode::from(u8::from(results.any_failed())))
}

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
        // A workload of which there is no figure has no plot.
        if let Some(svg) = plot::svg(results, workload) {
            let name = format!("{workload}.svg");
            let svg = svg.map_err(|error| Error::Plot(dir.join(&name), error))?;
            write(&name, &svg)?;
        }
    }
    Ok(())
}
