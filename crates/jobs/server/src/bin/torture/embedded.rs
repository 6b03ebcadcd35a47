//! The embedded store: a process that works, and a parent that kills it.

use std::{
    env,
    fs::File,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child as Process, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use humantime::parse_duration as duration;
use tourbillon::{Runtime, time::sleep};
use tourbillon_jobs::{Queue, Time, sqlite::Sqlite, store::StoreError};
use tourbillon_support::dir::Dir;

use crate::{
    Judged, Outcome, full,
    history::History,
    judge,
    load::{Hard, Load, bury, drain, node, stamp},
    say::say,
};

/// The signal by which a process ends that aborts.
const SIGABRT: i32 = 6;

#[derive(Args)]
pub struct Options {
    /// How often the process is killed. The default is 300; with `--jobs` there is no limit.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<u32>,
    /// How many jobs the store has to acknowledge. By default, clients schedule jobs until the last
    /// round.
    #[arg(long, value_name = "COUNT")]
    jobs: Option<u64>,
    /// The mean time between two kills.
    #[arg(long, value_name = "DURATION", default_value = "150ms", value_parser = duration)]
    kill: Duration,
    /// Let no file of a process grow beyond this many KiB, as if the disk were full, except in the
    /// last round. Every other process gets space after half of its time; the others are killed
    /// without it.
    #[arg(long, value_name = "KIB")]
    full: Option<u64>,
    /// Random seed for the moments of the kills.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    judged: Judged,
}

/// What a process does.
#[derive(Args)]
pub struct Work {
    /// The jobs are due within this time of their arrival.
    #[arg(long, value_name = "DURATION", default_value = "400ms", value_parser = duration)]
    within: Duration,
    /// How many clients work at once.
    #[arg(long, value_name = "COUNT", default_value = "16")]
    clients: usize,
    /// How many jobs the node holds. The default is small, so that many jobs wait in the store
    /// alone.
    #[arg(long, value_name = "COUNT", default_value = "200")]
    held: usize,
    #[command(flatten)]
    hard: Hard,
}

#[derive(Args)]
pub struct Child {
    dir: PathBuf,
    /// How many jobs are scheduled. After them, the process does what is left, and ends.
    #[arg(long, default_value = "0")]
    jobs: u64,
    /// Print the history in place of appending it to its file.
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    work: Work,
}

impl Work {
    /// Returns the command-line arguments that stand for these options.
    fn args(&self) -> Vec<String> {
        let within = humantime::format_duration(self.within);
        vec![
            format!("--within={within}"),
            format!("--clients={}", self.clients),
            format!("--held={}", self.held),
            format!("--abort={}", self.hard.abort),
            format!("--hang={}", self.hard.hang),
            format!("--large={}", self.hard.large),
        ]
    }
}

/// The name of the history in the directory of a run.
pub const HISTORY: &str = "history";

/// The number of jobs that the store has acknowledged, read from a growing history.
struct Acknowledged {
    history: BufReader<File>,
    count: u64,
}

impl Acknowledged {
    /// Reads the rest of the history. Returns the number of acknowledged jobs so far.
    fn read(&mut self) -> std::io::Result<u64> {
        let mut line = String::new();
        while self.history.read_line(&mut line)? > 0 {
            self.count += u64::from(line.ends_with(" scheduled\n"));
            line.clear();
        }
        Ok(self.count)
    }
}

/// Kills a process in each round, lets the last one end, and judges.
pub fn run(options: &Options) -> Outcome {
    let dir = Dir::new();
    let path = dir.path(HISTORY);
    fastrand::seed(options.seed);
    let rounds = match options.jobs {
        None => options.rounds.unwrap_or(300),
        Some(_) => options.rounds.unwrap_or(u32::MAX),
    };
    let mut acknowledged = Acknowledged {
        history: BufReader::new(
            File::options()
                .create(true)
                .append(true)
                .read(true)
                .open(&path)?,
        ),
        count: 0,
    };
    let start = Instant::now();
    let mut told = Instant::now();
    let mut kills = 0;
    let mut aborts = 0;
    loop {
        let count = acknowledged.read()?;
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            say(format_args!(
                "{:.0?}: {count} jobs, {kills} kills",
                start.elapsed()
            ));
        }
        let jobs = options.jobs.unwrap_or(u64::MAX).saturating_sub(count);
        let jobs = if kills < rounds { jobs } else { 0 };
        let full = options.full.filter(|_| kills < rounds);
        let mut command = match full {
            Some(kib) => full::command(kib)?,
            None => Command::new(env::current_exe()?),
        };
        let mut child = command
            .arg("embedded-child")
            .arg(dir.path(""))
            .args(["--jobs", &jobs.to_string()])
            .args(full.map(|_| "--print"))
            .args(options.work.args())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the child has no stdout")?;
        let time = options.kill.mul_f64(2.0 * fastrand::f64());
        let ended = if full.is_some() {
            let copying = full::copy(stdout, &path)?;
            let ended = full_round(&mut child, time, kills % 2 == 0)?;
            copying.join().map_err(|_| "the history is not whole")??;
            ended
        } else {
            let mut ready = String::new();
            BufReader::new(stdout).read_line(&mut ready)?;
            if ready.trim() != "ready" {
                return Err(format!("the child ended: {}", child.wait()?).into());
            }
            match kills < rounds {
                true => wait_and_kill(&mut child, time)?,
                false => Some(child.wait()?),
            }
        };
        match ended {
            Some(status) if status.success() => break,
            Some(status) if options.work.hard.abort > 0 && status.signal() == Some(SIGABRT) => {
                aborts += 1;
            }
            Some(status) => return Err(format!("the process ended with {status}").into()),
            None => kills += 1,
        }
    }
    say(format_args!(
        "the process was killed {kills} times, and aborted {aborts} times, {:.1?}",
        start.elapsed()
    ));
    judge(&path, &options.judged)
}

/// Kills a process after this time, by SIGKILL. Returns its status if it ends before.
fn wait_and_kill(child: &mut Process, time: Duration) -> std::io::Result<Option<ExitStatus>> {
    let ended = wait(child, time)?;
    if ended.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(ended)
}

/// Kills a process whose files may not grow. If `gets_space`, they may grow after half of `time`.
fn full_round(
    child: &mut Process,
    time: Duration,
    gets_space: bool,
) -> std::io::Result<Option<ExitStatus>> {
    let ended = wait(child, time / 2)?;
    if ended.is_some() {
        return Ok(ended);
    }
    if gets_space {
        full::give_space(child.id())?;
    }
    wait_and_kill(child, time / 2)
}

/// Waits until a process ends, or until this time is over.
fn wait(child: &mut Process, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return child.try_wait();
        }
        thread::sleep(left.min(Duration::from_millis(20)));
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
    }
}

/// Works until it is killed, or until all is done.
pub fn child(child: &Child) -> Outcome {
    // Panics of handlers are a part of the test.
    std::panic::set_hook(Box::new(|_| {}));
    let history = match child.print {
        true => PathBuf::from("/dev/stdout"),
        false => child.dir.join(HISTORY),
    };
    let history = Arc::new(History::append(&history)?);
    let work = &child.work;
    Runtime::new()?.block_on(async {
        let path = child.dir.join("jobs.db");
        let store = loop {
            match Sqlite::open(&path) {
                // The disk may be full.
                Err(StoreError::Full | StoreError::Failed(_)) if child.print => {
                    sleep(Duration::from_millis(5)).await;
                }
                opened => break opened?,
            }
        };
        let queue = Queue::new(store);
        // A small window, so that the jobs of the load are in the store as well as in timers.
        let window = (work.within * 3 / 8).min(Duration::from_secs(5));
        if !child.print {
            say("ready");
        }
        let node = node(&queue, &history, Time::wall, |node| {
            node.window(window).most_held(work.held)
        });
        let load = Load {
            prefix: format!("j{}-{}", stamp(), std::process::id()),
            clients: work.clients,
            jobs: child.jobs,
            within: work.within,
            pause: Duration::from_millis(2),
            hard: work.hard,
        };
        load.run(queue.clone(), history.clone()).await;
        drain(&queue, |_| {}).await;
        bury(&queue, &history).await;
        node.stop(Duration::from_secs(60)).await;
        Ok(())
    })
}
