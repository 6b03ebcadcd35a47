//! The program `tourbillon`: a server whose replies and connections are timed by the runtime's
//! timers (`serve`), a test under load that keeps its own books (`storm`), and one that goes on for as long as one
//! likes (`soak`).

mod args;
mod figures;
mod proc;
mod serve;
mod soak;
mod stop;
mod storm;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// A work-stealing runtime in which every core owns its timers, at work.
#[derive(Debug, Parser)]
#[command(name = "tourbillon", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer each HTTP request after a delay, and close connections that are idle for too long.
    Serve(serve::Args),
    /// Arm, cancel, refresh and reset timers from all sides, and tell whether each ran once and on
    /// time. Exits with status 1 if one was lost, ran twice, or was early.
    Storm(storm::Args),
    /// Do the same, and all else that a runtime does, for minutes or hours, and tell whether anything grew, was lost
    /// or does not add up. Exits with status 1 if so.
    Soak(soak::Args),
}

/// Prints a line of what is wrong, or nothing where nobody reads it any more: that is nothing to end for, as
/// `eprintln!` would.
fn complain(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Storm(args) => storm::run(&args),
        Command::Soak(args) => soak::run(&args),
    };
    done.unwrap_or_else(|error| {
        complain(format_args!("tourbillon: {error}"));
        ExitCode::FAILURE
    })
}
