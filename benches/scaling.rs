//! How the runtime scales with the number of cores: measured on this machine, counted for up to 64
//! workers, and simulated for up to 64 cores.
//!
//! ```text
//! cargo bench --bench scaling -- --workers N        measure with 1 to N workers, and simulate
//! cargo bench --bench scaling -- count [NAME …]     count with 2, 4, 8 and 64 workers
//! ```
//!
//! **Measured** (`scaling/table.rs`): the operations of `scaling/operations.rs`, with 1, 2, 4 and
//! so on up to N workers; without `--workers`, as many as there are cores. Each row says what to
//! expect up to the number of cores, and whether it was found. A row that others disturbed is not
//! judged: run it again. At 64 workers it takes a minute, and 2 GB of memory.
//!
//! **Counted** (`scaling/count.rs`): the instructions, the locked instructions and the shared cache
//! lines of an operation. valgrind counts them, so the number of cores does not matter. What grows
//! with the number of workers is the cost of more cores. `-- count NAME …` selects operations by
//! parts of their names.
//!
//! **Simulated** (`scaling/model.rs`): cores that pass cache lines to each other, by costs that are
//! measured in the same run (`scaling/measure.rs`). With `--line 200` a cache line takes 200 ns to
//! move, as between sockets.

#[path = "scaling/count.rs"]
mod count;
#[path = "scaling/measure.rs"]
mod measure;
#[path = "scaling/model.rs"]
mod model;
#[path = "scaling/operations.rs"]
mod operations;
#[path = "scaling/table.rs"]
mod table;

use std::{env, process::ExitCode, str::FromStr, thread::available_parallelism};

use measure::Costs;
use model::{Machine, Path};
use tourbillon_support::disturbance::Meter;

const USAGE: &str =
    "usage: cargo bench --bench scaling -- [--workers N] [--line NS] | count [NAME …]";

/// Returns the number after an option.
fn option<T: FromStr>(args: &[String], name: &str) -> Result<Option<T>, String> {
    let Some(at) = args.iter().position(|arg| arg == name) else {
        return Ok(None);
    };
    let value = args.get(at + 1).and_then(|value| value.parse().ok());
    value
        .map(Some)
        .ok_or(format!("{name} takes a number; {USAGE}"))
}

fn run() -> Result<(), String> {
    let args: Vec<_> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("count") => return count::print(&args[1..]),
        Some("run") => return count::child(&args[1..]),
        _ => {}
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let workers = option(&args, "--workers")?.unwrap_or(cores);
    if workers == 0 {
        return Err(format!("--workers takes at least 1; {USAGE}"));
    }
    table::print(workers);
    simulate(option(&args, "--line")?);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scaling: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the costs, simulates the machines and prints the results. If `line` is given, a cache
/// line takes this time to move, in ns, instead of the measured time.
fn simulate(line: Option<f64>) {
    let meter = Meter::start();
    let mut costs = Costs::measure();
    let disturbance = meter.read();
    println!("## Costs, ns\n\nThe machine: {disturbance}\n\n{costs}");
    if let Some(line) = line {
        costs.transfer = line;
        println!("\nA transfer is taken to be {line} ns.");
    }

    println!("\n## Simulated, million arms a second\n");
    println!(
        "| cores | local path | spread over all shards | one shard | its pushes, p50 / p99 ns \
         | its worker keeps up with |"
    );
    println!("|---|---|---|---|---|---|");
    for n in [1, 2, 4, 8, 16, 32, 64] {
        let local = Machine::new(costs, n, Path::Local).run();
        let spread = Machine::new(costs, n, Path::Spread).run();
        let one = Machine::new(costs, n, Path::OneShard).run();
        println!(
            "| {n} | {:.1} | {:.1} | {:.1} | {:.0} / {:.0} | {:.1} |",
            local.millions_a_second,
            spread.millions_a_second,
            one.millions_a_second,
            one.p50,
            one.p99,
            1e3 / costs.drain,
        );
    }

    println!("\n## Simulated: workers that sleep and wake, each 20,000 times a second\n");
    println!(
        "| cores | share of the time in which the word of searchers and sleepers is busy \
         | wait for it, p50 / p99 ns |"
    );
    println!("|---|---|---|");
    for n in [1, 2, 4, 8, 16, 32, 64, 128] {
        let parks = model::parks(costs, n, 20_000.0);
        println!(
            "| {n} | {:.1} % | {:.0} / {:.0} |",
            100.0 * parks.busy,
            parks.p50,
            parks.p99
        );
    }

    println!("\n## Simulated: until all workers run, after one of them has queued jobs for all\n");
    println!("| cores | ms |\n|---|---|");
    for n in [2, 4, 8, 16, 32, 64] {
        println!("| {n} | {:.2} |", model::ramp(costs, n) / 1e6);
    }
}
