//! `tourbillon storm --beside PEER`: the same sleeps on Tourbillon and on another runtime, by turns.
//!
//! Each turn is a process of its own, so that its memory and its processor time are those of one
//! runtime. The program starts itself with the arguments that it got, and with the hidden option
//! `--turn`. So each option of the runtime is valid for Tourbillon's turns.
//!
//! | file | content |
//! |---|---|
//! | `runtimes` | what a turn needs of a runtime, for each of them |
//! | `turn` | one turn |
//! | `report` | the turns side by side, as a table or as JSON |

mod report;
mod runtimes;
mod turn;

use std::{
    env, fmt, io,
    process::{Command, ExitCode, ExitStatus, Stdio},
    str::FromStr,
    time::Duration,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use self::{
    report::{Comparison, Rate},
    turn::{Sleeps, Turn},
};
use super::progress;
use crate::{
    args::{RuntimeArgs, count, nanos, usage_error},
    complain,
    disturbance::Meter,
    figures::Format,
    proc,
    say::{print, say},
};

pub(super) use self::report::HELP;

/// The options of a comparison.
#[derive(Debug, clap::Args)]
pub(super) struct BesideArgs {
    /// Compare with another runtime: run the same sleeps on both, by turns, and print both.
    ///
    /// Both have as many workers, on the same cores. A task for each sleep awaits `sleep_until`. It
    /// is armed before the deadlines begin. Each turn has a process of its own. Both runtimes are
    /// as their builders make them; the options of Tourbillon's are valid here, too.
    #[arg(long, value_enum, value_name = "PEER", conflicts_with_all = NOT_BESIDE)]
    pub(super) beside: Option<Peer>,
    /// With --beside: sleeps that end in a second. Several rates, with commas between them, are
    /// compared one after another.
    #[arg(
        long, value_name = "COUNT", value_delimiter = ',', default_value = "20k,200k,1M",
        value_parser = count, requires = "beside", conflicts_with = "timers",
    )]
    rate: Vec<u32>,
    /// With --beside: turns of each runtime.
    #[arg(
        long, value_name = "N", default_value_t = 3, requires = "beside",
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    turns: u32,
    /// The turn that this process runs.
    #[arg(long, hide = true, requires = "beside")]
    turn: Option<Order>,
}

/// The options of a storm that a comparison does not have.
const NOT_BESIDE: [&str; 9] = [
    "outside",
    "meddlers",
    "cancel",
    "refresh",
    "reset",
    "tasks",
    "trace",
    "inspect",
    "inspect_host",
];

/// A runtime to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    /// tokio's multi-threaded runtime, as `#[tokio::main]` builds it.
    Tokio,
}

/// A runtime that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum System {
    Tourbillon,
    Tokio,
}

impl From<Peer> for System {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Tokio => System::Tokio,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            System::Tourbillon => "tourbillon",
            System::Tokio => "tokio",
        })
    }
}

/// The options of a storm that a comparison has, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options<'a> {
    /// The sleeps of each turn, in place of a rate.
    pub(super) timers: Option<u32>,
    pub(super) spread: Option<Duration>,
    pub(super) lead: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) seed: u64,
    pub(super) format: Format,
    pub(super) runtime: &'a RuntimeArgs,
}

/// What a process is to do for a comparison. It is passed on as JSON.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Order {
    system: System,
    sleeps: Sleeps,
}

impl FromStr for Order {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// Why there is no comparison.
#[derive(Debug)]
enum Error {
    /// The program was built without the peer.
    NotBuilt(Peer),
    /// Under the peer's name, the program has Tourbillon.
    IsTourbillon(Peer),
    /// The sleeps could not be armed before the first deadline.
    NotArmed { system: System, lead: Duration },
    /// The process of a turn failed, and has said why.
    Failed { system: System, status: ExitStatus },
    /// The process of a turn could not be started, or did not answer.
    NoAnswer { system: System, error: io::Error },
    /// A runtime could not be built.
    Runtime(String),
    /// The system does not say what it should.
    System(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotBuilt(peer) => {
                let peer = System::from(*peer);
                write!(
                    f,
                    "--beside {peer}: this program was built without {peer}; build it with the \
                     feature `{peer}`: cargo run --release -p tourbillon-cli --features {peer} -- \
                     storm --beside {peer}"
                )
            }
            Error::IsTourbillon(peer) => {
                let peer = System::from(*peer);
                write!(
                    f,
                    "--beside {peer}: in this program, {peer} is Tourbillon's facade, so both \
                     columns would be Tourbillon's; build the program in a workspace that does \
                     not patch {peer}"
                )
            }
            Error::NotArmed { system, lead } => write!(
                f,
                "{system} did not arm the sleeps within {lead:?}: use fewer of them, or a longer \
                 --lead"
            ),
            Error::Failed { system, status } => {
                write!(f, "a turn of {system} failed: {status}")
            }
            Error::NoAnswer { system, error } => {
                write!(f, "a turn of {system} has no result: {error}")
            }
            Error::Runtime(error) => write!(f, "cannot build a runtime: {error}"),
            Error::System(error) => f.write_str(error),
        }
    }
}

/// The window of a turn, if the user names none.
const SPREAD: Duration = Duration::from_secs(1);
/// If the sleeps of a turn are not armed in time, the turn is repeated with twice the lead, up to
/// this often.
const LONGER: u32 = 5;
/// Upper bound of the memory of a task that sleeps, on any of the runtimes, with its slot.
const BYTES_PER_SLEEP: u64 = 640;

impl BesideArgs {
    /// Compares with `peer`, or runs one turn for a process that does.
    pub(super) fn run(&self, peer: Peer, options: Options<'_>) -> Result<ExitCode, String> {
        let done = match self.turn {
            Some(order) => order.run(options.runtime),
            None => self.compare(peer, options),
        };
        done.map_err(|error| match error {
            // The command was wrong, and not the run.
            Error::NotBuilt(_) | Error::IsTourbillon(_) => usage_error(&error.to_string()),
            error => error.to_string(),
        })
    }

    fn compare(&self, peer: Peer, options: Options<'_>) -> Result<ExitCode, Error> {
        peer.check()?;
        if cfg!(debug_assertions) {
            complain("built without optimization: such a comparison says little");
        }
        let systems = [System::Tourbillon, peer.into()];
        // It has the number of workers that the user gets, and knows how often the kernel throttles
        // the group of this process.
        let idle = options.runtime.builder().build();
        let idle = idle.map_err(|error| Error::Runtime(error.to_string()))?;
        let workers = idle.metrics().num_workers();
        let mut rates = Vec::new();
        for sleeps in self.sleeps(workers, options)? {
            rates.push(Rate::new(systems, sleeps));
        }
        let (turns, meter) = (self.turns, Meter::start());
        let bar = progress(u64::from(turns) * 2 * rates.len() as u64);
        for turn in 0..turns {
            for rate in &mut rates {
                // Who begins takes turns, too.
                for place in 0..2 {
                    let place = (place + turn as usize) % 2;
                    bar.set_message(systems[place].to_string());
                    let before = idle.metrics().throttled_periods();
                    let mut measured = rate.turn(systems[place])?;
                    measured.throttled = idle.metrics().throttled_periods() - before;
                    rate.add(place, measured);
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        let waking = options.runtime.waking();
        let comparison = Comparison::new(systems, waking, turns, workers, rates, meter.read());
        match options.format {
            Format::Table => print(&comparison),
            Format::Json => say(comparison.to_json()),
        }
        Ok(comparison.exit_code())
    }

    /// Returns the sleeps of a turn, for each rate.
    fn sleeps(&self, workers: usize, options: Options<'_>) -> Result<Vec<Sleeps>, Error> {
        let spread = options.spread.unwrap_or(SPREAD);
        let grace = nanos(options.grace).map_err(Error::System)?;
        let counts = match options.timers {
            Some(timers) => vec![f64::from(timers)],
            None => {
                let of_rate = |&rate: &u32| (f64::from(rate) * spread.as_secs_f64()).round();
                self.rate.iter().map(of_rate).collect()
            }
        };
        let sleeps = counts.into_iter().map(|count| {
            // A rate of a long window may be more than `require_memory` knows.
            let count = count.clamp(1.0, f64::from(u32::MAX - 1)) as u32;
            proc::require_memory(count, BYTES_PER_SLEEP).map_err(Error::System)?;
            let lead = options
                .lead
                .unwrap_or(Duration::from_millis(500) + Duration::from_nanos(1_500) * count);
            Ok(Sleeps {
                workers,
                count,
                lead: nanos(lead).map_err(Error::System)?,
                spread: nanos(spread).map_err(Error::System)?,
                grace,
                seed: options.seed,
            })
        });
        sleeps.collect()
    }
}

impl Peer {
    /// Fails if the program does not have this peer, but nothing or Tourbillon in its place.
    fn check(self) -> Result<(), Error> {
        if !runtimes::HAS_TOKIO {
            return Err(Error::NotBuilt(self));
        }
        match self {
            Peer::Tokio if turn::is_tourbillon(&runtimes::tokio(1)?) => {
                Err(Error::IsTourbillon(self))
            }
            Peer::Tokio => Ok(()),
        }
    }
}

impl Order {
    /// Runs the turn, and prints what it measured.
    fn run(self, runtime: &RuntimeArgs) -> Result<ExitCode, Error> {
        let Self { system, sleeps } = self;
        let turn = match system {
            System::Tourbillon => {
                let mut builder = runtime.builder();
                let built = builder.worker_threads(sleeps.workers).build();
                let built = built.map_err(|error| Error::Runtime(error.to_string()))?;
                turn::run(built, sleeps)
            }
            System::Tokio => turn::run(runtimes::tokio(sleeps.workers)?, sleeps),
        };
        say(serde_json::to_string(&turn?).expect("numbers are JSON"));
        Ok(ExitCode::SUCCESS)
    }

    /// Runs the turn in a process of its own. Returns `None` if its sleeps were not armed in time.
    fn send(self) -> Result<Option<Turn>, Error> {
        let Self { system, .. } = self;
        // The first argument is `storm`.
        let mut args: Vec<_> = env::args_os().skip(1).collect();
        let order = serde_json::to_string(&self).expect("numbers are JSON");
        args.splice(1..1, ["--turn".into(), order.into()]);
        // The kernel keeps the program, also if it is replaced by a newer one meanwhile.
        let output = Command::new("/proc/self/exe")
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Error::NoAnswer { system, error })?;
        if !output.status.success() {
            let status = output.status;
            return Err(Error::Failed { system, status });
        }
        serde_json::from_slice(&output.stdout).map_err(|error| Error::NoAnswer {
            system,
            error: error.into(),
        })
    }
}

impl Rate {
    /// Runs a turn of a system. If it needs a longer lead, the turns after it have that, too.
    fn turn(&mut self, system: System) -> Result<Turn, Error> {
        for longer in 0..=LONGER {
            if longer > 0 {
                self.sleeps.lead = self.sleeps.lead.max(1_000_000).saturating_mul(2);
            }
            let order = Order {
                system,
                sleeps: self.sleeps,
            };
            if let Some(turn) = order.send()? {
                return Ok(turn);
            }
        }
        let lead = Duration::from_nanos(self.sleeps.lead);
        Err(Error::NotArmed { system, lead })
    }
}
