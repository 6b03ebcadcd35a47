//! Measures the operations with a growing number of workers, and states what to expect.

use std::thread::available_parallelism;

use tourbillon_support::disturbance::{Disturbance, Meter};

use crate::operations::Operation;

const ROUNDS: usize = 5;

/// What is expected of an operation, as long as there are as many cores as workers.
enum Expect {
    /// The rate of each worker stays the same, from this number of workers on.
    Flat { from: usize },
    /// The rate of all together stays the same: one line goes from core to core.
    Bounded,
}

/// A worker keeps at least this share of its rate in a row that should be flat. The rest is for
/// shared caches, memory and clock speed.
const KEPT: f64 = 0.8;
/// All together keep at least this share of the rate of two in a row that is bounded.
const KEPT_BY_ALL: f64 = 0.3;

struct Row {
    operation: Operation,
    /// Operations per actor and round.
    n: usize,
    expect: Expect,
    because: &'static str,
}

const fn flat(operation: Operation, n: usize, from: usize, because: &'static str) -> Row {
    let expect = Expect::Flat { from };
    Row {
        operation,
        n,
        expect,
        because,
    }
}

const OWN: &str = "it writes lines of this worker only";
const NEXT: &str = "it writes lines of one other worker only";

static ROWS: [Row; 11] = [
    flat(Operation::Arm, 100_000, 1, OWN),
    flat(Operation::Cancel, 100_000, 1, OWN),
    flat(Operation::Refresh, 1_000_000, 1, OWN),
    flat(Operation::RefreshPeer, 1_000_000, 2, NEXT),
    flat(Operation::CancelPeer, 100_000, 2, NEXT),
    flat(Operation::Spawn, 100_000, 1, OWN),
    flat(Operation::Yield, 500_000, 1, OWN),
    flat(Operation::Wake, 100_000, 1, OWN),
    flat(
        Operation::Steal,
        4_000,
        1,
        "a thief takes half of a deque at a time",
    ),
    flat(
        Operation::ArmOutside,
        50_000,
        2,
        "threads spread over the inboxes",
    ),
    Row {
        operation: Operation::ArmOneShard,
        n: 50_000,
        expect: Expect::Bounded,
        because: "all push to one inbox",
    },
];

/// A measured cell: million operations a second of all together.
#[derive(Clone, Copy)]
struct Rate {
    median: f64,
    least: f64,
    most: f64,
}

impl Rate {
    /// Returns half of the range, in percent of the median.
    fn spread(self) -> f64 {
        50.0 * (self.most - self.least) / self.median
    }
}

/// Returns the rate of an operation, in millions a second of all together.
pub fn rate(operation: Operation, workers: usize) -> f64 {
    let row = ROWS.iter().find(|row| row.operation == operation);
    measure(row.expect("it has a row"), workers).median
}

fn measure(row: &Row, workers: usize) -> Rate {
    let operation = row.operation;
    let n = if operation == Operation::Steal {
        // One worker spawns for all.
        row.n * workers
    } else {
        row.n
    };
    let actors = operation.actors(workers);
    let round = |_| {
        let runtime = operation.runtime(workers, |builder| builder);
        let took = operation.run(&runtime, actors, n, |_, _| ());
        (n * actors) as f64 / took.as_nanos() as f64 * 1e3
    };
    let mut rates: Vec<_> = (0..ROUNDS).map(round).collect();
    rates.sort_by(f64::total_cmp);
    Rate {
        median: rates[ROUNDS / 2],
        least: rates[0],
        most: rates[ROUNDS - 1],
    }
}

/// Returns 1, 2, 4 and so on up to `most`, and `most` itself.
fn columns(most: usize) -> Vec<usize> {
    let mut columns: Vec<_> = (0..).map(|i| 1 << i).take_while(|n| *n < most).collect();
    columns.push(most);
    columns
}

/// Measures all rows with up to `most` workers, and prints the table.
pub fn print(most: usize) {
    let cores = available_parallelism().map_or(1, usize::from);
    let columns = columns(most);
    println!("## Measured, million operations a second\n");
    println!(
        "{cores} cores. All workers together ± half of the range of {ROUNDS} rounds, and ×: each \
         worker's rate beside that of one.\n"
    );
    if most > cores {
        println!(
            "Columns with * have more workers than cores: each worker gets a part of a core, so \
             these say nothing about scaling.\n"
        );
    }
    let head = columns
        .iter()
        .map(|n| format!("{n}{}", if *n > cores { "*" } else { "" }));
    println!(
        "| workers | {} | expected up to the number of cores | found | the machine |",
        head.collect::<Vec<_>>().join(" | ")
    );
    println!("|---|{}---|---|---|", "---|".repeat(columns.len()));
    for row in &ROWS {
        let mut disturbance = Disturbance::default();
        let rates = columns.iter().map(|workers| {
            let meter = Meter::start();
            let rate = measure(row, *workers);
            disturbance += meter.read();
            (*workers, rate)
        });
        let rates: Vec<_> = rates.collect();
        let one = rates[0].1.median;
        let cells = rates.iter().map(|(workers, rate)| {
            let each = rate.median / *workers as f64 / one;
            format!("{:.1} ±{:.0} % ×{each:.2}", rate.median, rate.spread())
        });
        println!(
            "| {} | {} | {} | {} | {disturbance} |",
            row.operation.name(),
            cells.collect::<Vec<_>>().join(" | "),
            row.expectation(),
            match disturbance.is_disturbed() {
                true => "not judged: disturbed".to_owned(),
                false => row.verdict(&rates, cores),
            },
        );
    }
    println!();
}

impl Row {
    fn expectation(&self) -> String {
        let because = self.because;
        match self.expect {
            Expect::Flat { from: 1 } => {
                format!("each keeps ≥ {KEPT} of one worker's rate: {because}")
            }
            Expect::Flat { from } => {
                format!("each keeps ≥ {KEPT} of the rate among {from} workers: {because}")
            }
            Expect::Bounded => {
                format!("all together keep ≥ {KEPT_BY_ALL} of the rate of 2: {because}")
            }
        }
    }

    /// Compares the columns that have a core for each worker with what is expected.
    fn verdict(&self, rates: &[(usize, Rate)], cores: usize) -> String {
        let too_few = || "not judged: too few cores".to_owned();
        let (from, least, by_all) = match self.expect {
            Expect::Flat { from } => (from, KEPT, false),
            Expect::Bounded => (2, KEPT_BY_ALL, true),
        };
        let rate = |(workers, rate): &(usize, Rate)| {
            rate.median / if by_all { 1.0 } else { *workers as f64 }
        };
        let mut judged = rates
            .iter()
            .filter(|(workers, _)| (from..=cores).contains(workers));
        let Some(base) = judged.next().map(rate) else {
            return too_few();
        };
        let below: Vec<_> = judged
            .clone()
            .filter(|it| rate(it) < least * base)
            .map(|(workers, _)| workers.to_string())
            .collect();
        match (judged.next(), &below[..]) {
            (None, _) => too_few(),
            (_, []) => "as expected".to_owned(),
            _ => format!("**below at {}**", below.join(", ")),
        }
    }
}
