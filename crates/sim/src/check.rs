//! Runs many seeds of a test: what the attribute [`test`](crate::test) expands to.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{self, Command, Stdio},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use crate::{
    outcome::{Failure, Report},
    process::{Child, Way},
    run,
    shrink::{self, Shrunk},
    simulation::Simulation,
    world::{
        Orders,
        decide::{self, Kept},
        outside,
        schedule::ENDLESS,
    },
};

/// One of this many seeds runs twice, and both runs have to be the same.
const TWICE: u64 = 16;
/// How often a long test tells how far it is.
const PROGRESS: Duration = Duration::from_secs(5);
/// Begins what the process of the runner tells. What stands before it is of the test harness.
const MARK: &str = "--- tourbillon-sim ---\n";

/// How many different calls that left the simulation are counted.
const MOST_CALLS: usize = 1_000;

const RUNNER: &str = "TOURBILLON_SIM_RUNNER";
const SEED: &str = "TOURBILLON_SIM_SEED";
const TRACE: &str = "TOURBILLON_SIM_TRACE";
/// The file that gets a trace for Perfetto.
const PERFETTO: &str = "TOURBILLON_SIM_PERFETTO";
/// The decisions of the seed that may go another way than the usual one.
const KEEP: &str = "TOURBILLON_SIM_KEEP";
/// For how many seconds a failing seed is shrunk.
const SHRINK: &str = "TOURBILLON_SIM_SHRINK";
const SHRINK_SECONDS: u64 = 10;
/// Through how many points a run goes that tells how long the others are. Longer ones count as this
/// long. No time decides that, so that a seed has the same plan on each machine.
const MEASURED: u64 = 2_000_000;

/// A test, and how many seeds of it run.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The path of the test, with that of its crate.
    pub name: &'static str,
    pub seeds: u64,
    /// The time limit. Seeds that have not begun by then are left out.
    pub seconds: u64,
}

/// Returns a number of the environment.
fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    match value.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name} must be a number, and is {value:?}"),
    }
}

/// Runs the seeds of a test, and panics if one fails.
#[doc(hidden)]
pub fn check(test: Test, describe: fn(&mut Simulation)) {
    // The harness knows the test without the name of its crate.
    let name = test
        .name
        .split_once("::")
        .map_or(test.name, |(_, name)| name);
    if env::var_os(RUNNER).is_some() {
        let code = runner(test, name, describe);
        process::exit(code);
    }
    // A process of its own has this test alone, so its one thread can make processes. Its addresses
    // are the same each time.
    let program = env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command
        .args([
            name,
            "--exact",
            "--nocapture",
            "--include-ignored",
            "--test-threads=1",
        ])
        .env(RUNNER, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // SAFETY: the call is one of the system, and needs no memory.
    unsafe {
        command.pre_exec(|| {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            Ok(())
        });
    }
    let ran = command.stderr(Stdio::inherit()).output();
    let ran = ran.unwrap_or_else(|error| panic!("the process of the seeds: {error}"));
    let text = String::from_utf8_lossy(&ran.stdout);
    let (before, told) = text.split_once(MARK).unwrap_or((&*text, ""));
    match (ran.status.code(), told) {
        (Some(0), told) if !told.is_empty() => say(told),
        (Some(1), told) if !told.is_empty() => panic!("{told}"),
        (_, told) => panic!(
            "the process of the seeds ended: {}\n{before}{told}",
            ran.status
        ),
    }
}

/// Returns the file that gets a trace. What an earlier run has left there goes: a run that does not
/// write a trace must not seem to have one.
fn trace_file() -> Option<PathBuf> {
    let file = PathBuf::from(env::var_os(PERFETTO)?);
    if fs::symlink_metadata(&file).is_ok_and(|found| found.is_file()) {
        _ = fs::remove_file(&file);
    }
    Some(file)
}

/// Writes to the standard error, whatever the harness captures.
fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Runs one seed, in a process.
fn start(test: Test, seed: u64, way: Way, describe: impl FnOnce(&mut Simulation)) -> Child {
    Child::start(seed, way, move || {
        let mut simulation = Simulation::new(seed);
        describe(&mut simulation);
        assert!(!simulation.hosts.is_empty(), "{} adds no host", test.name);
        run::run(simulation)
    })
}

/// The seeds that run and have run.
struct Seeds {
    test: Test,
    describe: fn(&mut Simulation),
    begun: Instant,
    /// By the number of the process: whether it is the second run of its seed.
    running: BTreeMap<libc::pid_t, (u64, bool, Child)>,
    /// The first runs of seeds that run twice.
    first: BTreeMap<u64, Report>,
    again: Vec<u64>,
    done: u64,
    twice: u64,
    simulated: Duration,
    /// What should happen in some seed, and in how many it did.
    sometimes: BTreeMap<String, u64>,
    /// The calls that the real system has answered, and how often each was made.
    outside: BTreeMap<String, u64>,
    failure: Option<Failure>,
}

/// Runs a test without random decisions, to know through how many points its runs go.
fn measure(test: Test, describe: fn(&mut Simulation)) {
    let way = Way {
        orders: Orders {
            kept: Some(Kept::default()),
            ..Orders::default()
        },
        ..Way::default()
    };
    let short = move |simulation: &mut Simulation| {
        describe(simulation);
        simulation.points = simulation.points.min(MEASURED);
    };
    let points = match start(test, 0, way, short).wait().result {
        Ok(report) => report.points(),
        Err(failure) if failure.why().starts_with(ENDLESS) => MEASURED,
        Err(_) => return,
    };
    run::USUAL_POINTS.store(points, Ordering::Relaxed);
}

fn runner(test: Test, name: &str, describe: fn(&mut Simulation)) -> i32 {
    let mut out = std::io::stdout();
    measure(test, describe);
    if let Some(seed) = number(SEED) {
        let kept = env::var(KEEP).ok().map(|text| {
            let kept = decide::parse(&text);
            Kept::new(kept.unwrap_or_else(|| panic!("{KEEP} is {text:?}, which it cannot be")))
        });
        let way = Way {
            is_shown: true,
            orders: Orders {
                traces: env::var_os(TRACE).is_some(),
                kept,
                perfetto: trace_file(),
                ..Orders::default()
            },
            ..Way::default()
        };
        let ended = start(test, seed, way, describe).wait();
        let (told, code) = match ended.result {
            Ok(report) => (format!("{name}: seed {seed} passes, {report:?}\n"), 0),
            Err(failure) => (format!("{failure}\n"), 1),
        };
        let _ = write!(out, "{MARK}{told}");
        return code;
    }
    let mut seeds = Seeds {
        test,
        describe,
        begun: Instant::now(),
        running: BTreeMap::new(),
        first: BTreeMap::new(),
        again: Vec::new(),
        done: 0,
        twice: 0,
        simulated: Duration::ZERO,
        sometimes: BTreeMap::new(),
        outside: BTreeMap::new(),
        failure: None,
    };
    seeds.run(name);
    let took = seeds.begun.elapsed().as_secs_f64();
    let more = seeds.more();
    // Of fewer seeds than the author asked for, nobody knows what they should find.
    let all_ran = seeds.done >= test.seeds;
    let mut never = seeds
        .sometimes
        .iter()
        .filter(|(_, held)| **held == 0 && all_ran);
    let (told, code) = match (&seeds.failure, never.next()) {
        (Some(failure), _) => (failed(name, failure, &more, &seeds), 1),
        (None, Some((what, _))) => (
            format!(
                "{name}: in none of {} seeds this happened: {what}\n",
                seeds.done
            ),
            1,
        ),
        (None, None) => {
            let mut text = format!(
                "{name}: {} of {} seeds pass, {} of them twice, in {took:.1} s; {:.1?} were \
                 simulated\n",
                seeds.done,
                seeds.seeds(),
                seeds.twice,
                seeds.simulated
            );
            for (what, held) in &seeds.sometimes {
                text += &format!("  {what}: {held} of {} seeds\n", seeds.done);
            }
            (text + &outside::line(&seeds.outside), 0)
        }
    };
    let _ = write!(out, "{MARK}{told}");
    code
}

/// What more runs of a failing seed tell.
#[derive(Default)]
struct More {
    /// The failure with few decisions, and what happens then, in words.
    shrunk: Option<(Shrunk, String)>,
    /// The seed did not fail in the same way again, but so.
    other: Option<String>,
    /// The file that has a trace.
    perfetto: Option<PathBuf>,
}

/// Returns what a person needs to know of a failure.
fn failed(name: &str, failure: &Failure, more: &More, seeds: &Seeds) -> String {
    let program = env::current_exe().unwrap_or_default();
    let (seed, program) = (failure.seed, program.display());
    let mut text = format!(
        "{name}: {failure}\n\n\
         {} other seeds passed. To repeat it; with {TRACE}=1 as well, each step is shown:\n  \
         {SEED}={seed} {program} {name} --exact --nocapture\n",
        seeds.done
    );
    if let Some(other) = &more.other {
        text += &format!(
            "\nThe seed went another way when it was repeated: {other}. Something outside of the \
             simulation decided.\n"
        );
    }
    if let Some((shrunk, story)) = &more.shrunk {
        let (few, all) = (shrunk.kept.len(), shrunk.all);
        let (kept, took) = (decide::write(&shrunk.kept), shrunk.took.as_secs_f64());
        text += &format!(
            "\nIt also fails with {few} of its {all} random decisions, after {} tries in \
             {took:.1} s:\n  \
             {SEED}={seed} {KEEP}='{kept}' {program} {name} --exact --nocapture\n\n\
             What happens then, with a > where the seed decides:\n\
             {story}    fails: {}\n",
            shrunk.tries,
            shrunk
                .failure
                .why
                .lines()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        );
    }
    if let Some(file) = &more.perfetto {
        text += &format!("\n{} has the trace, for Perfetto.\n", file.display());
    }
    text
}

impl Seeds {
    fn seeds(&self) -> u64 {
        number("TOURBILLON_SIM_SEEDS").unwrap_or(self.test.seeds)
    }

    fn run(&mut self, name: &str) {
        let jobs = std::thread::available_parallelism().map_or(2, usize::from);
        let seeds = self.seeds();
        let seconds = number("TOURBILLON_SIM_SECONDS").unwrap_or(self.test.seconds);
        let limit = Duration::from_secs(seconds);
        let (mut next, mut told) = (0, PROGRESS);
        loop {
            let elapsed = self.begun.elapsed();
            let is_over = self.failure.is_some() || elapsed >= limit;
            if self.running.len() < jobs && !is_over {
                let seed = match self.again.pop() {
                    Some(seed) => Some((seed, true)),
                    None if next < seeds => {
                        next += 1;
                        Some((next - 1, false))
                    }
                    None => None,
                };
                if let Some((seed, is_second)) = seed {
                    let child = start(self.test, seed, Way::default(), self.describe);
                    self.running.insert(child.pid, (seed, is_second, child));
                    continue;
                }
            }
            if self.running.is_empty() {
                return;
            }
            self.reap();
            if elapsed >= told {
                told = elapsed + PROGRESS;
                say(&format!(
                    "{name}: {} of {seeds} seeds, {elapsed:.0?}\n",
                    self.done
                ));
            }
        }
    }

    /// Shrinks the failure to few decisions, tells what happens with those, and has a trace written
    /// if somebody asked for one.
    fn more(&self) -> More {
        let Some(failure) = &self.failure else {
            return More::default();
        };
        let mut more = More {
            perfetto: trace_file(),
            ..More::default()
        };
        let limit = Duration::from_secs(number(SHRINK).unwrap_or(SHRINK_SECONDS));
        let run = |way| start(self.test, failure.seed, way, self.describe).wait();
        match shrink::shrink(failure, limit, run) {
            Ok(shrunk) => {
                let story = shrunk.story(more.perfetto.clone(), run);
                more.shrunk = Some((shrunk, story));
            }
            Err(other) => {
                more.other = (!other.is_empty()).then_some(other);
                // The run with all of its decisions is all that there is to show.
                if more.perfetto.is_some() {
                    let orders = Orders {
                        perfetto: more.perfetto.clone(),
                        ..Orders::default()
                    };
                    let ended = run(Way {
                        orders,
                        ..Way::default()
                    });
                    more.other = shrink::compare(&ended, failure).err().or(more.other);
                }
            }
        }
        more.perfetto = more.perfetto.filter(|file| file.exists());
        more
    }

    /// Waits for the end of one process.
    fn reap(&mut self) {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
        let Some((seed, is_second, child)) = self.running.remove(&pid) else {
            return;
        };
        let report = match child.ended(status).result {
            Ok(report) => report,
            Err(failure) => return self.note(failure),
        };
        if is_second {
            self.twice += 1;
            if self
                .first
                .remove(&seed)
                .is_some_and(|first| first != report)
            {
                let why = "it went two ways: something outside of the simulation decided, such as \
                           the address of a value"
                    .into();
                self.note(Failure {
                    seed,
                    why,
                    output: String::new(),
                });
            }
            return;
        }
        self.done += 1;
        self.simulated += report.simulated();
        for (call, times) in report.outside() {
            // Each seed may have names of its own.
            if self.outside.len() >= MOST_CALLS && !self.outside.contains_key(call) {
                continue;
            }
            *self.outside.entry(call.into()).or_default() += times;
        }
        for (name, times) in &report.numbers {
            if let Some(what) = name.strip_prefix(run::SOMETIMES) {
                *self.sometimes.entry(what.into()).or_default() += u64::from(*times > 0);
            }
        }
        if seed % TWICE == 0 {
            self.first.insert(seed, report);
            self.again.push(seed);
        }
    }

    /// Keeps the failure of the lowest seed, so that a test tells the same one each time.
    fn note(&mut self, failure: Failure) {
        let known = self.failure.as_ref();
        if known.is_none_or(|known| failure.seed < known.seed) {
            self.failure = Some(failure);
        }
    }
}
