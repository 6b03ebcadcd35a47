//! The program `tourbillon`. It has five commands: `serve`, an HTTP server whose delays and idle
//! timeouts are timers; `storm`, a load test that checks every timer; `soak`, a long-running test;
//! `top`, which watches a program; and `trace`, which tells why timers were late.

mod args;
#[path = "../../../examples/common/arguments.rs"]
mod arguments;
mod disturbance;
mod figures;
mod proc;
mod record;
#[path = "../../../examples/common/say.rs"]
mod say;
mod serve;
mod soak;
mod stop;
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
    /// Run a long test: do everything that a runtime does, for minutes or hours.
    ///
    /// Checks that every timer ends exactly once, that the runtime's counters balance, and that
    /// memory, descriptors and threads do not grow. The exit status is 1 if a check fails.
    Soak(soak::Args),
    /// Show the timers, workers and stalls of a running program in the terminal.
    ///
    /// The program must serve the dashboard, as it does with the option --inspect.
    Top(top::Args),
    /// Tell why timers were late, by a trace of the flight recorder.
    ///
    /// The file also opens in the trace viewers of Perfetto and Chrome.
    Trace(trace::Args),
}

fn main() -> ExitCode {
    let done = match arguments::<Cli>().command {
        Command::Serve(args) => serve::run(args),
        Command::Storm(args) => storm::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    say::end("tourbillon", done)
}
