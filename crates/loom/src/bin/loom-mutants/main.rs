//! Checks that models can fail: applies one mutant at a time to a copy of the source, and requires
//! the model that the mutant names to fail. The package's README describes a mutant.

mod mutant;
mod run;
mod tests;
mod tree;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use clap::Parser;

use self::{
    mutant::Mutant,
    run::{Outcome, Run},
    tests::Cargo,
    tree::Tree,
};

/// Applies each mutant to a copy of the source, and requires the model that it names to fail.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The mutants to try, by the names of their files without `.patch` [default: all].
    names: Vec<String>,
    /// The folder of the mutants.
    #[arg(long, default_value = "mutants")]
    mutants: PathBuf,
    /// What is copied: a folder with the package, and with all packages that it names by paths
    /// [default: the repository of git, or else the current folder].
    #[arg(long)]
    root: Option<PathBuf>,
    /// The package of the workspace that has the models.
    #[arg(long, short)]
    package: Option<String>,
    /// The profile of cargo to build with.
    #[arg(long, default_value = "release")]
    profile: String,
    /// How many mutants are tried at once [default: one for each core, at most 8].
    #[arg(long, short)]
    jobs: Option<usize>,
    /// How many seconds a model may take.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Does not try first that each model passes on the source as it is.
    #[arg(long)]
    trust: bool,
}

fn main() -> ExitCode {
    match check(Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("loom-mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// Tries the mutants. Returns whether each was killed.
fn check(options: Options) -> Result<bool, String> {
    let tree = Tree::new(options.root)?;
    let mutants = Mutant::read_all(&options.mutants, &options.names)?;

    let cores = thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    let jobs = options.jobs.unwrap_or(cores).clamp(1, mutants.len());
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => std::path::absolute(target).map_err(|error| error.to_string())?,
        None => tree.here().join("target"),
    };
    let target = target.join("mutants");

    let width = |length: fn(&Mutant) -> usize| mutants.iter().map(length).max().unwrap_or(0);
    let columns = (
        width(|mutant| mutant.name.len()),
        width(|mutant| mutant.test.to_string().len()),
    );
    row(columns, "mutant", "killed by", "seconds", "with");
    let number = mutants.len();
    let queue = Mutex::new(mutants.into_iter());
    let (sender, outcomes) = mpsc::channel();
    let (mut killed, mut survived, mut known, mut broken) = (0, 0, 0, 0);
    thread::scope(|scope| {
        for job in 0..jobs {
            let (sender, queue, tree) = (sender.clone(), &queue, &tree);
            // Each has a target folder of its own: in a shared one they would use each other's
            // mutants.
            let cargo = Cargo {
                package: options.package.clone(),
                profile: options.profile.clone(),
                target: target.join(job.to_string()),
            };
            let timeout = Duration::from_secs(options.timeout);
            let trust = options.trust;
            scope.spawn(move || {
                let mut run = match Run::new(tree, cargo, timeout, trust) {
                    Ok(run) => run,
                    Err(error) => {
                        _ = sender.send(Err(error));
                        return;
                    }
                };
                loop {
                    // The guard goes at the end of the line, and not after the mutant's run.
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(mutant) = next else { return };
                    let outcome = run.try_mutant(&mutant);
                    if sender
                        .send(outcome.map(|outcome| (mutant, outcome)))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            let (mutant, (outcome, took)) = outcome?;
            let test = &mutant.test;
            let (by, with) = match outcome {
                Outcome::Killed(message) => {
                    killed += 1;
                    (test.to_string(), message)
                }
                Outcome::Hangs => {
                    killed += 1;
                    (format!("{test} (hangs)"), String::new())
                }
                Outcome::Survived => {
                    survived += 1;
                    (format!("SURVIVED: {test}"), String::new())
                }
                Outcome::SurvivesAsSaid => {
                    known += 1;
                    let why = mutant.survives.clone().unwrap_or_default();
                    (format!("none, as it says: {test}"), why)
                }
                Outcome::TimedOut => {
                    survived += 1;
                    (format!("TIMED OUT: {test}"), String::new())
                }
                Outcome::Broken(why) => {
                    broken += 1;
                    eprintln!("{}: {why}", mutant.name);
                    continue;
                }
            };
            let seconds = format!("{:.1}", took.as_secs_f64());
            row(columns, &mutant.name, &by, &seconds, &with);
        }
        Ok::<_, String>(())
    })?;
    let as_said = match known {
        0 => String::new(),
        known => format!(", {known} known to survive"),
    };
    say(&format!(
        "{killed} killed, {survived} survived, {broken} broken{as_said}"
    ));
    Ok(killed + known == number)
}

/// The longest beginning of a message that a row shows.
const MESSAGE: usize = 70;

/// Prints a row of the table, with the first two columns as wide as said.
fn row((name_width, by_width): (usize, usize), name: &str, by: &str, seconds: &str, with: &str) {
    let shown: String = with.chars().take(MESSAGE).collect();
    let cut = if shown.len() < with.len() { "…" } else { "" };
    let line = format!("{name:<name_width$} | {by:<by_width$} | {seconds:>7} | {shown}{cut}");
    say(line.trim_end());
}

/// Prints a line at once. A closed output is no reason to fail.
fn say(line: &str) {
    _ = writeln!(io::stdout(), "{line}");
    _ = io::stdout().flush();
}
