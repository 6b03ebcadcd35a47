//! A discrete simulation of cores that pass cache lines to each other.
//!
//! A line stays with the core that used it last. A core that wants it waits for the cores that
//! asked before, and then for the transfer. The last user pays only for the operation. This models
//! coherence for written lines: one owner at a time, in the order of the requests. The model leaves
//! out cheaper transfers within a cluster, memory bandwidth, and SMT. `--line` shows the effect of
//! more expensive transfers.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::measure::{COUNTER_SETS, Costs, SHARED_LINES};

/// Seed of the generator. It is fixed, so that all runs give the same result.
const SEED: u64 = 7;
/// Operations per core.
const OPERATIONS: usize = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Each core is a worker that arms on its own shard.
    Local,
    /// Each core is an outside thread. It arms on the shards in turn; there are as many as cores.
    Spread,
    /// All cores arm on one shard.
    OneShard,
}

pub struct Answer {
    pub millions_a_second: f64,
    /// Duration of one arm, in ns.
    pub p50: f64,
    pub p99: f64,
}

#[derive(Clone, Copy)]
struct Line {
    free_at: f64,
    last: usize,
}

impl Line {
    const NEW: Line = Line {
        free_at: 0.0,
        last: usize::MAX,
    };

    /// A core uses the line at `now` or later. Returns the time at which it is done.
    fn take(&mut self, core: usize, now: f64, costs: &Costs) -> f64 {
        let cost = if self.last == core {
            costs.own
        } else {
            costs.transfer
        };
        self.last = core;
        self.free_at = now.max(self.free_at) + cost;
        self.free_at
    }
}

/// The next step of a core.
#[derive(Clone, Copy)]
enum Step {
    Private,
    /// A read-modify-write of one of the shard's lines, or, twice, of the line of its counters. On
    /// the inbox's head it is a load and a compare-exchange some ns later; no other core gets the
    /// line in between.
    Change(usize),
}

pub struct Machine {
    costs: Costs,
    cores: usize,
    path: Path,
}

impl Machine {
    pub fn new(costs: Costs, cores: usize, path: Path) -> Self {
        Self { costs, cores, path }
    }

    pub fn run(&self) -> Answer {
        let shards = match self.path {
            Path::OneShard => 1,
            Path::Local | Path::Spread => self.cores,
        };
        let mut lines = vec![[Line::NEW; SHARED_LINES + COUNTER_SETS]; shards];
        let mut random = Random(SEED);
        let mut begun = vec![0.0; self.cores];
        let mut left = vec![OPERATIONS; self.cores];
        let mut shard: Vec<usize> = (0..self.cores).map(|core| core % shards).collect();
        let mut steps = vec![Step::Private; self.cores];
        let mut took = Vec::with_capacity(self.cores * OPERATIONS);
        let mut end: f64 = 0.0;
        // The cores by the time of their next step. They start at different times.
        let mut next: BinaryHeap<Reverse<(Time, usize)>> = (0..self.cores)
            .map(|core| Reverse((Time(random.draw() * self.costs.private), core)))
            .collect();
        while let Some(Reverse((Time(now), core))) = next.pop() {
            let lines = &mut lines[shard[core]];
            let (at, step) = match steps[core] {
                Step::Private => {
                    begun[core] = now;
                    match self.path {
                        // On the local path a core changes only its own lines.
                        Path::Local => (now + self.costs.local, None),
                        _ => {
                            // Vary by 50 %, so that cores do not run in lockstep.
                            let private = self.costs.private * (0.5 + random.draw());
                            (now + private, Some(Step::Change(0)))
                        }
                    }
                }
                Step::Change(n) => {
                    let line = if n < SHARED_LINES {
                        n
                    } else {
                        SHARED_LINES + core % COUNTER_SETS
                    };
                    let at = lines[line].take(core, now, &self.costs);
                    (at, (n <= SHARED_LINES).then_some(Step::Change(n + 1)))
                }
            };
            steps[core] = step.unwrap_or(Step::Private);
            if step.is_none() {
                took.push(at - begun[core]);
                end = end.max(at);
                left[core] -= 1;
                if left[core] == 0 {
                    continue;
                }
                shard[core] = (shard[core] + 1) % shards;
            }
            next.push(Reverse((Time(at), core)));
        }
        let (p50, p99) = quantiles(&mut took);
        Answer {
            millions_a_second: took.len() as f64 * 1e3 / end,
            p50,
            p99,
        }
    }
}

pub struct Parks {
    /// Share of the time in which the line is used or moved.
    pub busy: f64,
    pub p50: f64,
    pub p99: f64,
}

/// Simulates workers that sleep and wake `a_second` times per second. Each change of state updates
/// the word that counts searching and sleeping workers.
pub fn parks(costs: Costs, workers: usize, a_second: f64) -> Parks {
    let mut word = Line::NEW;
    let mut random = Random(SEED);
    let mean = 1e9 / a_second / 2.0;
    let mut left = vec![OPERATIONS; workers];
    let mut next: BinaryHeap<Reverse<(Time, usize)>> = (0..workers)
        .map(|worker| Reverse((Time(random.exponential(mean)), worker)))
        .collect();
    let mut waited = Vec::new();
    let (mut used, mut end) = (0.0, 0.0f64);
    while let Some(Reverse((Time(now), worker))) = next.pop() {
        let begins = now.max(word.free_at);
        let at = word.take(worker, now, &costs);
        used += at - begins;
        waited.push(at - now);
        end = end.max(at);
        left[worker] -= 1;
        if left[worker] > 0 {
            next.push(Reverse((Time(at + random.exponential(mean)), worker)));
        }
    }
    let (p50, p99) = quantiles(&mut waited);
    Parks {
        busy: used / end,
        p50,
        p99,
    }
}

/// Returns the time, in ns, until all workers run after one of them queued enough tasks. Each
/// worker that finds work as the last searcher wakes the next one.
pub fn ramp(costs: Costs, workers: usize) -> f64 {
    let mut random = Random(SEED);
    // A wake-up varies by 50 %. The woken worker updates the word, steals (one transfer for each
    // end of the deque), and wakes the next one.
    (1..workers)
        .map(|_| costs.wake * (0.5 + random.draw()) + 3.0 * costs.transfer)
        .sum()
}

fn quantiles(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values[((values.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.99))
}

/// A time of the simulation, in ns.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The generator MINSTD.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0 as f64 / f64::from(0x7fff_ffff)
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.draw().ln() * mean
    }
}
