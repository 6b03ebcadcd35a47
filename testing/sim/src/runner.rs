//! Runs each seed in a process of its own, so that all begin in the same state; two at a time.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    process::ExitCode,
    time::{Duration, Instant},
};

use tourbillon_sim::raw as sim;

use crate::{Meant, ledger, life, plan::Plan, scenario};

/// The limit for a seed, in seconds of real time. A child that takes longer hangs outside of the
/// world.
const PATIENCE: u32 = 20;
/// The number of seeds that `.ci/weekly` runs. `.ci/run` runs a quarter of them.
const WEEKLY: u64 = 16_000;
/// One of this many seeds runs twice, and both runs have to be the same.
const TWICE: u64 = 16;

struct Args {
    first: u64,
    seeds: u64,
    minutes: Option<u64>,
    jobs: usize,
    trace: bool,
    keep_going: bool,
    single: bool,
    workers: Option<usize>,
}

fn args() -> Result<Args, String> {
    let mut args = Args {
        first: 0,
        seeds: WEEKLY,
        minutes: None,
        jobs: std::thread::available_parallelism().map_or(2, usize::from),
        trace: false,
        keep_going: false,
        single: false,
        workers: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(option) = given.next() {
        let mut number = || {
            let value = given.next().and_then(|value| value.parse::<u64>().ok());
            value.ok_or(format!("{option} takes a number"))
        };
        match &*option {
            "--seed" => (args.first, args.seeds, args.single) = (number()?, 1, true),
            "--first" => args.first = number()?,
            "--seeds" => args.seeds = number()?,
            "--minutes" => args.minutes = Some(number()?),
            "--jobs" => args.jobs = number()?.max(1) as usize,
            "--workers" => args.workers = Some(number()?.max(1) as usize),
            "--trace" => args.trace = true,
            "--keep-going" => args.keep_going = true,
            _ => {
                return Err(
                    "--seeds N, --first N, --minutes N, --jobs N, --workers N, --keep-going; \
                            --seed N, and with it --trace"
                        .into(),
                );
            }
        }
    }
    Ok(args)
}

/// The output of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    numbers: BTreeMap<String, u64>,
    failure: Option<String>,
}

struct Child {
    seed: u64,
    again: bool,
    pipe: File,
}

pub fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    if args.single {
        let plan = Plan::of(args.first, args.workers);
        eprintln!("{plan:?}");
        let told = one(args.first, args.workers, args.trace);
        print!("{told}");
        return ExitCode::SUCCESS;
    }
    let begin = Instant::now();
    let until = args.minutes.map(|it| begin + Duration::from_secs(60 * it));
    let mut all = Sums::default();
    let mut children: BTreeMap<i32, Child> = BTreeMap::new();
    let mut hashes: BTreeMap<u64, Told> = BTreeMap::new();
    let mut queue: Vec<u64> = Vec::new();
    let mut next = args.first;
    loop {
        let more = match until {
            Some(until) => Instant::now() < until,
            None => next < args.first + args.seeds,
        };
        let stopped = all.failed > 0 && !args.keep_going;
        if children.len() < args.jobs && !stopped && (more || !queue.is_empty()) {
            let (seed, again) = match queue.pop() {
                Some(seed) => (seed, true),
                None => {
                    next += 1;
                    (next - 1, false)
                }
            };
            let (pid, pipe) = fork(seed, args.workers);
            children.insert(pid, Child { seed, again, pipe });
            continue;
        }
        let Some((seed, again, told)) = reap(&mut children) else {
            break;
        };
        if let Some(failure) = &told.failure {
            all.failed += 1;
            println!(
                "seed {seed} FAILED\n{failure}\nreplay: testing/sim/run.sh --seed {seed} --trace\n"
            );
            continue;
        }
        if again {
            all.twice += 1;
            if hashes.remove(&seed).is_some_and(|first| first != told) {
                all.failed += 1;
                println!("seed {seed} went two ways: {told:?}\n");
            }
            continue;
        }
        all.add(&told);
        if seed % TWICE == 0 {
            hashes.insert(seed, told);
            queue.push(seed);
        }
    }
    all.print(begin.elapsed());
    if all.failed == 0 && all.seeds > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[derive(Default)]
struct Sums {
    seeds: u64,
    failed: u64,
    twice: u64,
    numbers: BTreeMap<String, u64>,
}

impl Sums {
    fn add(&mut self, told: &Told) {
        self.seeds += 1;
        for (name, number) in told.numbers.iter().filter(|(name, _)| *name != "hash") {
            let sum = self.numbers.entry(name.clone()).or_default();
            *sum = if name == "latest_ns" {
                *number.max(sum)
            } else {
                *sum + number
            };
        }
    }

    fn print(&self, took: Duration) {
        let (seeds, twice) = (self.seeds, self.twice);
        println!(
            "{seeds} seeds in {:.1} s, {twice} of them twice, {} failed",
            took.as_secs_f64(),
            self.failed
        );
        let numbers = self.numbers.iter();
        let numbers: Vec<_> = numbers.map(|(name, sum)| format!("{name} {sum}")).collect();
        println!("{}", numbers.join(", "));
    }
}

/// Runs a seed in a child process, and returns the pipe from which its output can be read.
fn fork(seed: u64, workers: Option<usize>) -> (i32, File) {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: this process has one thread, so the child finds all of its locks free.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: these are descriptors of this process; the parent uses the reading end.
            unsafe {
                libc::close(ends[0]);
                libc::dup2(ends[1], 1);
                libc::dup2(ends[1], 2);
                libc::close(ends[1]);
                libc::alarm(PATIENCE);
            }
            let told = one(seed, workers, false);
            let _ = std::io::stdout().write_all(told.as_bytes());
            let _ = std::io::stdout().flush();
            // SAFETY: the child must not run the parent's destructors and exit handlers.
            unsafe { libc::_exit(0) }
        }
        pid => {
            // SAFETY: both are descriptors of this process, and nothing else owns the one that is
            // kept.
            let pipe = unsafe {
                libc::close(ends[1]);
                OwnedFd::from_raw_fd(ends[0])
            };
            (pid, pipe.into())
        }
    }
}

/// Waits for a child to end. Returns its seed, whether this was the second run of the seed, and
/// its output.
fn reap(children: &mut BTreeMap<i32, Child>) -> Option<(u64, bool, Told)> {
    if children.is_empty() {
        return None;
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
    let mut child = children.remove(&pid).expect("it is one of ours");
    let mut text = String::new();
    let _ = child.pipe.read_to_string(&mut text);
    let mut told = Told::default();
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        for word in text.lines() {
            if let Some((name, number)) = word.split_once(' ') {
                let number = number.parse().unwrap_or_default();
                told.numbers.insert(name.into(), number);
            }
        }
    } else {
        let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        let why = match signal {
            Some(libc::SIGALRM) => "it stood still outside of the world".into(),
            Some(signal) => format!("signal {signal}"),
            None => String::new(),
        };
        told.failure = Some(format!("{why}{text}"));
    }
    Some((child.seed, child.again, told))
}

/// Runs a seed. Returns its numbers, one per line.
fn one(seed: u64, workers: Option<usize>, trace: bool) -> String {
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<Meant>().is_none() {
            sim::fail(&format!("{info}"));
        }
    }));
    let plan = Plan::of(seed, workers);
    let before = descriptors();
    let report = sim::run(seed, plan.world.clone(), trace, || scenario::run(&plan));
    let after = descriptors();
    if before != after {
        sim::fail(&format!("{before} descriptors before, and {after} after"));
    }
    let mut numbers = vec![
        ("hash", report.hash),
        ("points", report.points),
        ("threads", report.threads as u64),
        ("virtual_us", report.took / 1_000),
        ("moments_without_a_thread_to_run", report.looks),
        ("dropped", report.faults.dropped),
        ("delayed", report.faults.delayed),
        ("doubled", report.faults.doubled),
        ("spurious", report.faults.spurious),
        ("interrupts", report.faults.interrupts),
        ("freezes", report.faults.freezes),
        ("pauses", report.faults.pauses),
        ("suspensions", report.faults.suspensions),
        ("wall_steps", report.faults.wall_steps),
        ("refused", report.faults.refused),
    ];
    {
        let records = ledger::records();
        numbers.push(("timers", records.len() as u64));
        let events = records.iter().flat_map(|it| &it.events);
        let calls = events.filter(|it| matches!(it.what, ledger::What::Called(_)));
        numbers.push(("callbacks", calls.count() as u64));
    }
    let (followed, aborted) = life::counts();
    numbers.push(("followed_tasks", followed));
    numbers.push(("aborted_tasks", aborted));
    ledger::tally(|tally| {
        numbers.push(("tasks", tally.tasks));
        numbers.push(("tasks_through", tally.tasks_through));
        numbers.push(("sleeps", tally.sleeps));
        numbers.push(("timeouts", tally.timeouts));
        numbers.push(("blocking_jobs", tally.blocking.len() as u64));
        numbers.push(("blocks", tally.blocks.len() as u64));
        numbers.push(("latest_ns", tally.latest));
        numbers.push(("waits", tally.waits));
        numbers.push(("waits_held_to_a_bound", tally.held));
        numbers.push(("waits_held_to_4_ms", tally.sharp));
    });
    let lines = numbers
        .iter()
        .map(|(name, number)| format!("{name} {number}\n"));
    lines.collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |list| list.count())
}
