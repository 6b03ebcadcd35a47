//! Kills processes that work, and judges the history that they leave. See `DESIGN.md`.

mod calm;
mod check;
mod edn;
mod embedded;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod faketime;
mod full;
mod history;
mod load;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod proxy;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod server;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod shared;

use std::{
    error::Error,
    fs::File,
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser};
use tourbillon_support::{
    arguments::arguments,
    say::{self, complain, say},
};

/// Kill processes that work on delayed jobs at random moments, and judge what they did.
#[derive(Parser)]
enum Command {
    /// One process on the embedded store, killed in each round.
    Embedded(embedded::Options),
    /// The process that `embedded` kills.
    #[command(hide = true)]
    EmbeddedChild(embedded::Child),
    /// One process that nobody kills: measures the lateness.
    Calm(calm::Options),
    /// Three nodes on a server, which are killed, cut off and slowed down now and then.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    Shared(shared::Options),
    /// A node that `shared` kills.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    #[command(hide = true)]
    SharedChild(shared::Child),
}

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let ended = match arguments() {
        Command::Embedded(options) => embedded::run(&options),
        Command::EmbeddedChild(child) => embedded::child(&child),
        Command::Calm(options) => calm::run(&options),
        #[cfg(any(feature = "postgres", feature = "redis"))]
        Command::Shared(options) => shared::run(&options),
        #[cfg(any(feature = "postgres", feature = "redis"))]
        Command::SharedChild(child) => shared::child(&child),
    };
    say::end("torture", ended)
}

/// Who else judges the history.
#[derive(Args)]
struct Judged {
    /// Keep the history in this file, in the form of Jepsen (EDN), for another judge: `judge.py`.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// Judges a history, and prints what it has.
fn judge(path: &Path, judged: &Judged) -> Outcome {
    if let Some(kept) = &judged.history {
        edn::write(
            BufReader::new(File::open(path)?),
            BufWriter::new(File::create(kept)?),
        )?;
    }
    let history = BufReader::new(File::open(path)?);
    match check::judge(history::read(history)) {
        Ok(found) => {
            say(format_args!(
                "{} jobs acknowledged, {} in doubt, {} cancelled, {} replaced, {} requests failed; \
                 {} attempts, {} cut off, {} stale; {} dead, {} of them given up",
                found.acknowledged,
                found.in_doubt,
                found.cancelled,
                found.replaced,
                found.failed,
                found.runs,
                found.cut,
                found.stale,
                found.dead,
                found.given_up,
            ));
            load::print_lateness(&found.lateness);
            say("none lost, none early, duplicates only with a stale token");
            Ok(())
        }
        Err(wrong) => {
            for line in wrong.iter().take(20) {
                complain(line);
            }
            Err(format!("{} promises were broken", wrong.len()).into())
        }
    }
}
