//! `tourbillon profile`: has a running program sample its workers.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{ValueEnum, value_parser};

use crate::{
    args::usage_error,
    arguments::tame,
    say::{check, complain, print},
    top::fetch::Site,
};

/// How much longer than the profile its answer may take. The first one reads the debug information.
const LIMIT: Duration = Duration::from_secs(60);

/// Arguments of `tourbillon profile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the program serves its dashboard.
    #[arg(value_name = "HOST:PORT", value_parser = Site::parse)]
    site: Site,
    /// How long to sample.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..=300))]
    seconds: u64,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Folded)]
    format: Format,
    /// The time by which threads are sampled.
    #[arg(long, value_enum, default_value_t = Clock::Cpu)]
    clock: Clock,
    /// File to write. Without it the answer goes to stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each stack, with its number of samples.
    Folded,
    /// A file for `go tool pprof -tagroot=task`.
    Pprof,
    /// A flame graph for a browser.
    Svg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// Processor time: what the processors do.
    Cpu,
    /// Elapsed time: also where jobs block. Calls in which a thread waits are interrupted.
    Wall,
}

/// Returns a value as it is given on the command line, and in the query.
fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let to_terminal = args.output.is_none() && io::stdout().is_terminal();
    if to_terminal && args.format != Format::Folded {
        usage_error("this format is for a file: choose one with -o");
    }
    let (seconds, format, clock) = (args.seconds, word(args.format), word(args.clock));
    let path = format!("/profile?seconds={seconds}&format={format}&clock={clock}");
    let until = Instant::now() + Duration::from_secs(seconds) + LIMIT;
    let body = args.site.body(&path, until).map_err(|error| {
        let hint = "the program needs the feature `profile` of tourbillon-inspect";
        match error.contains(" 404 ") {
            true => format!("{error}; {hint}"),
            false => error,
        }
    })?;
    if args.format == Format::Folded && body.is_empty() {
        complain("no thread was sampled: the workers had nothing to do");
    }
    match &args.output {
        Some(file) => fs::write(file, &body)
            .map_err(|error| format!("cannot write {}: {error}", tame(file)))?,
        None if to_terminal => print(String::from_utf8_lossy(&body)),
        None => {
            let mut stdout = io::stdout().lock();
            check(stdout.write_all(&body).and_then(|()| stdout.flush()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
