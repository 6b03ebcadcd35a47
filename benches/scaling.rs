//! How arming scales with the number of cores: measured on this machine, and simulated for up to 64
//! cores.
//!
//! 1. *Measured*: the local path, on which each worker arms on its own shard, with 1 worker up to
//!    one per core; and the contended path, on which outside threads arm on the only shard of a
//!    runtime, with 1 thread up to one per core.
//! 2. *Costs*: the costs that the simulation uses, each measured alone: a read-modify-write of a
//!    cache line that the core owns, and of one that another core used last; a push; reading one
//!    new timer from the inbox.
//! 3. *Simulated* (`scaling/model.rs`): cores that pass cache lines to each other. First as many
//!    cores as were measured, to show the model's error, then up to 64.
//!
//! Run `cargo bench --bench scaling`. With `-- --line 200` a cache line takes 200 ns to move, as
//! between sockets.

#[path = "scaling/measure.rs"]
mod measure;
#[path = "scaling/model.rs"]
mod model;

use std::{env, thread::available_parallelism};

use measure::{Costs, contended_arms, local_arms};
use model::{Machine, Path};

fn main() {
    let args: Vec<String> = env::args().collect();
    let line = args.windows(2).find(|pair| pair[0] == "--line");
    let line = line.map(|pair| pair[1].parse::<f64>().expect("--line takes nanoseconds"));
    let cores = available_parallelism().map_or(1, usize::from);

    println!("## Measured, million arms a second\n");
    println!("| cores | local path | one shard, from outside |\n|---|---|---|");
    for n in 1..=cores {
        println!("| {n} | {:.1} | {:.1} |", local_arms(n), contended_arms(n));
    }

    let mut costs = Costs::measure();
    println!("\n## Costs, ns\n\n{costs}");
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
