//! HTTP/1 through hyper, on Tourbillon and on tokio, under the load of `wrk`. The runtimes take
//! turns.
//!
//! Each server is a separate process with two workers. `wrk` shares the cores with it.
//!
//! | | reply | `wrk` |
//! |---|---|---|
//! | *hello* | 13 bytes at once, without a timer | 1 thread, 64 connections |
//! | *header timeout* | 13 bytes at once; hyper's timeout of 30 s for each request's head | 1 thread, 64 connections |
//! | *delayed* | 13 bytes after a sleep of 100 ms | 1 thread, 2,000 connections |
//!
//! Columns: requests per second; CPU time of the server's threads, as counted by the kernel, per
//! request; and latencies as seen by `wrk`. Each figure is the median of the rounds, the first two
//! with their minimum and maximum. The ratios are medians of the rounds' ratios. The kernel's
//! scheduler divides the CPU between the server and `wrk`, so the CPU time per request is the most
//! reliable figure.
//!
//! Run `cargo bench --bench http --features hyper`. Arguments after `--` set the number of rounds
//! (5) and the seconds per round (5): `-- 9 3`.

#[path = "http/client.rs"]
mod client;
#[path = "http/servers.rs"]
mod servers;

use std::{env, error::Error};

use client::Figures;
use servers::{LOADS, Load, SYSTEMS};
use tourbillon_support::disturbance::Meter;

const ROUNDS: usize = 5;
const SECONDS: u64 = 5;

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let figures = sorted(figures);
    figures[figures.len() / 2]
}

/// Formats the median, and the minimum and the maximum in parentheses.
fn spread(figures: impl Iterator<Item = f64>, decimals: usize) -> String {
    let figures = sorted(figures);
    let [median, least, most] =
        [figures.len() / 2, 0, figures.len() - 1].map(|at| format!("{:.decimals$}", figures[at]));
    format!("{median} ({least}–{most})")
}

/// Runs all rounds of a load. Returns each system's figures per round.
fn measure(load: &Load, rounds: usize, seconds: u64) -> Result<Vec<Vec<Figures>>, Box<dyn Error>> {
    let mut all: Vec<_> = SYSTEMS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        // Rotate the order, so that no system always runs first.
        for turn in 0..SYSTEMS.len() {
            let system = (round + turn) % SYSTEMS.len();
            all[system].push(client::run(SYSTEMS[system].name, load, seconds)?);
        }
    }
    Ok(all)
}

fn print(load: &Load, all: &[Vec<Figures>]) {
    let line = |name: &str, of: &[Figures]| {
        let column = |figure: fn(&Figures) -> f64| median(of.iter().map(figure));
        println!(
            "{:<16}{name:<22}{:>24}{:>20}{:>10.2}{:>10.2}",
            load.name,
            spread(of.iter().map(|it| it.requests_a_second), 0),
            spread(of.iter().map(|it| it.cpu_micros_a_request), 2),
            column(|it| it.p50_millis),
            column(|it| it.p99_millis),
        );
    };
    for (system, of) in SYSTEMS.iter().zip(all) {
        line(system.name, of);
    }
    let (ours, tokio) = (&all[0], &all[SYSTEMS.len() - 1]);
    let ratio = |figure: fn(&Figures) -> f64| {
        let ratios = ours.iter().zip(tokio);
        median(ratios.map(|(ours, tokio)| figure(ours) / figure(tokio)))
    };
    println!(
        "tourbillon / tokio: {:.2} by requests a second, {:.2} by processor time",
        ratio(|it| it.requests_a_second),
        ratio(|it| it.cpu_micros_a_request),
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [serve, system, load] = &args[..] {
        assert_eq!(serve, "serve", "at most two numbers");
        return servers::serve(system, load);
    }
    let rounds = args.first().map_or(Ok(ROUNDS), |arg| arg.parse())?;
    let seconds = args.get(1).map_or(Ok(SECONDS), |arg| arg.parse())?;
    println!("{rounds} rounds of {seconds} s");
    println!(
        "{:<16}{:<22}{:>24}{:>20}{:>10}{:>10}",
        "load", "system", "req/s", "CPU µs/req", "p50 ms", "p99 ms"
    );
    for load in LOADS {
        // The meter counts the servers and `wrk` as part of this program: they are child processes
        // that end before it is read.
        let meter = Meter::start();
        print(load, &measure(load, rounds, seconds)?);
        println!("the machine: {}\n", meter.read());
    }
    Ok(())
}
