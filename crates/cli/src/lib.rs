#![doc = include_str!("../README.md")]

// The public modules are hidden, because only the soak test in this repository uses them.

#[doc(hidden)]
pub mod args;
#[doc(hidden)]
pub mod arguments;
mod disturbance;
#[doc(hidden)]
pub mod figures;
#[doc(hidden)]
pub mod ledger;
mod names;
#[doc(hidden)]
pub mod proc;
mod profile;
#[doc(hidden)]
pub mod record;
#[doc(hidden)]
pub mod say;
mod serve;
#[doc(hidden)]
pub mod server;
mod storm;
mod top;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::{arguments::arguments, say::complain};

/// Run servers and load tests on the Tourbillon runtime, in which every core owns its timers.
#[derive(Debug, Parser)]
#[command(name = "tourbillon", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer each HTTP request after a delay, and close idle connections.
    Serve(serve::Args),
    /// Run a load test: arm, cancel, refresh and reset timers from all threads, and check each one.
    ///
    /// Every timer must end exactly once, and none may fire before its deadline. The exit status is
    /// 1 if a timer was lost, ended twice or fired early.
    Storm(storm::Args),
    /// Show the timers, workers and stalls of a running program in the terminal.
    ///
    /// The program must serve the dashboard, as it does with the option --inspect.
    Top(top::Args),
    /// Sample the workers of a running program: what its processors do, and for which task.
    ///
    /// The program must serve the dashboard, with the feature `profile` of tourbillon-inspect.
    Profile(profile::Args),
    /// Tell why timers were late, by a trace of the flight recorder.
    ///
    /// The file also opens in the trace viewers of Perfetto and Chrome.
    Trace(trace::Args),
}

/// Runs the program: parses the arguments of the process, and runs the command that they name.
/// Returns the exit status.
pub fn main() -> ExitCode {
    let done = match arguments::<Cli>().command {
        Command::Serve(args) => serve::run(args),
        Command::Storm(args) => storm::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    say::end("tourbillon", done)
}
