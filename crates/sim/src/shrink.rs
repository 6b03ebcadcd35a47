//! Looks for few decisions with which a seed fails in the same way.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    outcome::{Failure, Report},
    process::{Child, Ended, Way},
    run,
    simulation::Simulation,
    world::{
        Orders,
        decide::{self, CLASSES, Decision, Kept},
        outside::LATE,
    },
};

/// A failure with few decisions.
pub(crate) struct Shrunk {
    /// The decisions that are left, in their order.
    pub(crate) kept: Vec<Decision>,
    /// How many there were.
    pub(crate) all: usize,
    /// How many runs it took.
    pub(crate) tries: u32,
    pub(crate) took: Duration,
    /// How it fails with those that are left.
    pub(crate) failure: Failure,
    /// The hash of the run that failed so.
    pub(crate) hash: Option<u64>,
}

/// A search, and the best that it has found.
struct Search<R> {
    run: R,
    begun: Instant,
    limit: Duration,
    tries: u32,
    kept: Vec<Decision>,
    failure: Failure,
    hash: Option<u64>,
    /// How the last run ended that did not fail in the same way.
    other: String,
}

/// Returns what two failures have in common that are the same one: what is said first, without what
/// may differ from run to run.
fn place(why: &str) -> String {
    let first = why.lines().next().unwrap_or_default();
    let is_place = |text: &str| {
        text.rsplit(':')
            .next()
            .is_some_and(|end| end.parse::<u32>().is_ok())
    };
    match first.split_once(": ") {
        // A file and a line, of `assert_always!`.
        Some((place, _)) if is_place(place) => place.into(),
        _ if first.starts_with("panicked at ") => first.into(),
        // Numbers of a message may be times.
        _ => first.chars().filter(|it| !it.is_ascii_digit()).collect(),
    }
}

/// Returns how a run ended, in a line, and whether that is the failure of `place`.
pub(crate) fn compare(ended: &Ended, expected: &Failure) -> Result<(), String> {
    match &ended.result {
        Ok(_) => Err("it passed".into()),
        Err(failure) if place(&failure.why) == place(&expected.why) => Ok(()),
        Err(failure) => Err(failure.why.lines().next().unwrap_or_default().into()),
    }
}

/// Looks for few decisions of a seed with which it fails in the same way. If nothing can be found,
/// returns why: the seed does not fail again, or ends without a word. The reason is empty if the
/// time is over before anything is known.
pub(crate) fn shrink(
    failure: &Failure,
    limit: Duration,
    run: impl Fn(Way) -> Ended,
) -> Result<Shrunk, String> {
    // Each try would take as long.
    if failure
        .why
        .lines()
        .next()
        .is_some_and(|why| why.ends_with(LATE))
    {
        return Err(String::new());
    }
    let mut search = Search {
        run,
        begun: Instant::now(),
        limit,
        tries: 0,
        kept: Vec::new(),
        failure: failure.clone(),
        hash: None,
        other: String::new(),
    };
    if !search.attempt(None) {
        return Err(search.other);
    }
    let all = search.kept.len();
    // Most seeds need nothing of most classes.
    search.attempt(Some(Vec::new()));
    for (class, _) in CLASSES.into_iter().rev() {
        search.leave_out(|_, it| it.key.class == class);
    }
    loop {
        while search.reduce() {}
        if !search.leave_out_neighbours() {
            break;
        }
    }
    let took = search.begun.elapsed();
    Ok(Shrunk {
        kept: search.kept,
        all,
        tries: search.tries,
        took,
        failure: search.failure,
        hash: search.hash,
    })
}

impl Shrunk {
    /// Runs the seed once more, and tells what happens before it fails. `perfetto` gets a trace of
    /// that. If that run is another one than the one that failed, says so. Call this in a process
    /// with one thread: the standard library has a lock for backtraces, which another thread could
    /// have when the child is made.
    pub(crate) fn story(&self, perfetto: Option<PathBuf>, run: impl Fn(Way) -> Ended) -> String {
        let way = Way {
            orders: Orders {
                kept: Some(Kept::new(self.kept.iter().copied())),
                tells: true,
                perfetto,
                ..Orders::default()
            },
            ..Way::default()
        };
        let ended = run(way);
        let other = match compare(&ended, &self.failure) {
            Ok(()) if ended.hash == self.hash => return ended.story,
            Ok(()) => "it failed at the same place, by other steps".into(),
            Err(other) => other,
        };
        format!(
            "    (This run went another way than the one that failed: {other}. Something outside \
             of the simulation decided.)\n{}",
            ended.story
        )
    }
}

impl<R: Fn(Way) -> Ended> Search<R> {
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    /// Runs the seed with some of its decisions. If it fails in the same way, those that it took
    /// are the best that are known.
    fn attempt(&mut self, kept: Option<Vec<Decision>>) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        self.tries += 1;
        let way = Way {
            seconds: left.as_secs() as u32 + 1,
            orders: Orders {
                kept: kept.map(Kept::new),
                records: true,
                ..Orders::default()
            },
            ..Way::default()
        };
        let ended = (self.run)(way);
        if let Err(other) = compare(&ended, &self.failure) {
            self.other = other;
            return false;
        }
        // Without a list of the decisions, nothing is known of what the failure needs.
        let taken = ended.taken.and_then(|taken| decide::parse(&taken));
        let (Some(taken), Err(failure)) = (taken, ended.result) else {
            return false;
        };
        (self.kept, self.failure, self.hash) = (taken, failure, ended.hash);
        true
    }

    /// Tries to do without the decisions that are chosen by place or value.
    fn leave_out(&mut self, chosen: impl Fn(usize, &Decision) -> bool) -> bool {
        let all = self.kept.iter().enumerate();
        let rest = all.filter(|(at, it)| !chosen(*at, it)).map(|it| *it.1);
        let rest: Vec<_> = rest.collect();
        rest.len() < self.kept.len() && self.attempt(Some(rest))
    }

    /// Leaves out two to four that follow each other. A switch to a thread and the one back are
    /// often needed both or not at all. Returns whether that has helped.
    fn leave_out_neighbours(&mut self) -> bool {
        let mut found = false;
        for count in 2..=4 {
            let mut from = 0;
            while from + count <= self.kept.len() && !self.left().is_zero() {
                let range = from..from + count;
                match self.leave_out(|at, _| range.contains(&at)) {
                    true => (found, from) = (true, from.saturating_sub(1)),
                    false => from += 1,
                }
            }
        }
        found && !self.left().is_zero()
    }

    /// Leaves out parts of what is left, of half of it at first, and of one at last, after Zeller
    /// and Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*. Returns whether one of
    /// the last parts could be left out, so that another round may find more.
    fn reduce(&mut self) -> bool {
        let mut part = self.kept.len().div_ceil(2);
        while part > 0 {
            let (mut from, mut found) = (0, false);
            while from < self.kept.len() && !self.left().is_zero() {
                let range = from..from + part;
                match self.leave_out(|at, _| range.contains(&at)) {
                    // What is at this place now was behind it.
                    true => found = true,
                    false => from += part,
                }
            }
            if part == 1 {
                return found && !self.left().is_zero();
            }
            part = part.div_ceil(2);
        }
        false
    }
}

/// Runs one seed and tells the decisions of it, as `TOURBILLON_SIM_KEEP` has them. `kept` has those
/// that may go another way than the usual one; `None` stands for all.
pub fn run_with(simulation: &Simulation, kept: Option<&str>) -> (Result<Report, Failure>, String) {
    run_to(simulation, kept, None)
}

/// Does what [`run_with`] does, and writes a trace for Perfetto to a file.
pub fn run_to(
    simulation: &Simulation,
    kept: Option<&str>,
    perfetto: Option<PathBuf>,
) -> (Result<Report, Failure>, String) {
    let kept = kept.map(|text| Kept::new(decide::parse(text).expect("these are decisions")));
    let way = Way {
        orders: Orders {
            kept,
            records: true,
            perfetto,
            ..Orders::default()
        },
        ..Way::default()
    };
    let ended = start(simulation, way);
    (ended.result, ended.taken.unwrap_or_default())
}

/// Runs one seed for so many seconds of real time at most.
pub fn run_for(simulation: &Simulation, seconds: u32) -> Result<Report, Failure> {
    let way = Way {
        seconds,
        ..Way::default()
    };
    start(simulation, way).result
}

/// Shrinks a failure of a seed. Returns the decisions that are left.
pub fn few_decisions(simulation: &Simulation, failure: &Failure) -> Option<String> {
    let limit = Duration::from_secs(60);
    let shrunk = shrink(failure, limit, |way| start(simulation, way)).ok()?;
    Some(decide::write(&shrunk.kept))
}

fn start(simulation: &Simulation, way: Way) -> Ended {
    let of_child = simulation.clone();
    Child::start(simulation.seed, way, move || run::run(of_child)).wait()
}
