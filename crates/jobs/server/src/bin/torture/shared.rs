//! A store on a server: three nodes that work, and a parent that schedules jobs and kills a node
//! now and then.

use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use humantime::parse_duration as duration;
use tourbillon::{Runtime, time::sleep};
use tourbillon_jobs::{Queue, Time, store::StoreError};
use tourbillon_support::dir::Dir;

use crate::{
    Judged, Outcome,
    embedded::HISTORY,
    faketime,
    history::History,
    judge,
    load::{Hard, Load, bury, drain, node, stamp},
    proxy::Proxy,
    say::say,
    server::{self, Kind, Server},
};

#[derive(Args)]
pub struct Options {
    /// The server.
    #[arg(long, value_enum, default_value_t = Kind::value_variants()[0])]
    store: Kind,
    /// How many jobs are scheduled.
    #[arg(long, value_name = "COUNT", default_value = "50000")]
    jobs: u64,
    /// The jobs are due within this time of their arrival.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    within: Duration,
    /// The time between two kills; zero kills nobody.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    kill: Duration,
    /// How often the server is crashed and started again, in turn with the nodes.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    crashes: u32,
    /// The time between two partitions; zero makes none. Each keeps a node from the server for two
    /// leases.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    cut: Duration,
    /// Delay of all data between the nodes and the server.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    delay: Duration,
    /// How wrong the nodes' wall clocks are: one is ahead, one is behind, one is right, and so on.
    /// Needs libfaketime.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    skew: Duration,
    /// How many nodes work.
    #[arg(long, value_name = "COUNT", default_value = "3")]
    nodes: usize,
    /// The length of a lease.
    #[arg(long, value_name = "DURATION", default_value = "1500ms", value_parser = duration)]
    lease: Duration,
    #[command(flatten)]
    hard: Hard,
    #[command(flatten)]
    judged: Judged,
}

#[derive(Args)]
pub struct Child {
    dir: PathBuf,
    #[arg(value_enum)]
    store: Kind,
    port: u16,
    #[arg(value_parser = duration)]
    lease: Duration,
    /// By how many microseconds the wall clock of this process is ahead.
    #[arg(allow_hyphen_values = true)]
    skew: i64,
}

/// The place of a node: its network and its clock.
struct Place {
    proxy: Option<Proxy>,
    /// The name of the server's kind.
    store: &'static str,
    /// The port that leads to the server.
    port: u16,
    /// By how many microseconds the wall clock is ahead.
    skew: i64,
}

impl Place {
    fn new<S: Server>(options: &Options, number: usize, server: u16) -> std::io::Result<Self> {
        let needs_proxy = !options.cut.is_zero() || !options.delay.is_zero();
        let proxy = match needs_proxy {
            true => Some(Proxy::start(server, options.delay)?),
            false => None,
        };
        let port = proxy.as_ref().map_or(server, Proxy::port);
        let skew = i64::try_from(options.skew.as_micros()).unwrap_or(i64::MAX);
        Ok(Self {
            proxy,
            store: S::NAME,
            port,
            skew: [skew, -skew, 0][number % 3],
        })
    }

    /// Starts a node in a process of its own.
    fn start(&self, dir: &Dir, lease: Duration) -> Result<Process, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        if self.skew != 0 {
            let seconds = self.skew as f64 / 1e6;
            command
                .env("LD_PRELOAD", faketime::find()?)
                .env("FAKETIME", format!("{seconds:+}s"))
                .env("DONT_FAKE_MONOTONIC", "1");
        }
        let asked = stamp();
        let mut child = command
            .arg("shared-child")
            .arg(dir.path(""))
            .args([self.store, &self.port.to_string()])
            .arg(humantime::format_duration(lease).to_string())
            .arg(self.skew.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the node has no stdout")?;
        let process = Process(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let clock = line.trim().strip_prefix("ready ");
        let clock: i64 = clock.ok_or("a node ended as it started")?.parse()?;
        // The node read its clock between `asked` and now.
        if clock - self.skew < asked || clock - self.skew > stamp() {
            return Err("libfaketime does not change the clock of a node".into());
        }
        Ok(process)
    }
}

/// A node in a process of its own.
struct Process(std::process::Child);

impl Process {
    /// Kills the node by SIGKILL, and waits for its end.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Schedules jobs, kills nodes until all jobs are done, and judges.
pub fn run(options: &Options) -> Outcome {
    match options.store {
        #[cfg(feature = "postgres")]
        Kind::Postgres => run_on::<server::Postgres>(options),
        #[cfg(feature = "redis")]
        Kind::Redis => run_on::<server::Redis>(options),
    }
}

fn run_on<S: Server>(options: &Options) -> Outcome {
    let dir = Dir::new();
    let server = Mutex::new(S::start()?);
    let port = lock(&server).port();
    let path = dir.path(HISTORY);
    let file = Arc::new(History::append(&path)?);
    let is_over = AtomicBool::new(false);
    let runtime = Runtime::new()?;
    let queue =
        runtime.block_on(async { Ok::<_, StoreError>(Queue::new(S::connect(port).await?)) })?;
    let mut nodes = Vec::new();
    for number in 0..options.nodes {
        let place = Place::new::<S>(options, number, port)?;
        let process = place.start(&dir, options.lease)?;
        nodes.push((place, process));
    }
    let start = Instant::now();
    let faults = thread::scope(|scope| {
        let faults = scope.spawn(|| faults(options, &dir, &server, &mut nodes, &is_over));
        runtime.block_on(async {
            let load = Load {
                prefix: "job".into(),
                clients: 200,
                jobs: options.jobs,
                within: options.within,
                pause: Duration::ZERO,
                hard: options.hard,
            };
            load.run(queue.clone(), file.clone()).await;
            say(format_args!(
                "all jobs are scheduled after {:.1?}",
                start.elapsed()
            ));
            let mut told = Instant::now();
            drain(&queue, |live| {
                if told.elapsed() > Duration::from_secs(60) {
                    told = Instant::now();
                    say(format_args!(
                        "{:.0?}: {live} jobs are left",
                        start.elapsed()
                    ));
                }
            })
            .await;
            bury(&queue, &file).await;
        });
        is_over.store(true, Ordering::Relaxed);
        faults.join().expect("this thread does not panic")
    })?;
    say(format_args!(
        "{} nodes, {} kills, {} aborts, {} partitions and {} crashes of the server, {:.1?}",
        options.nodes,
        faults.kills,
        faults.aborts,
        faults.cuts,
        faults.crashes,
        start.elapsed()
    ));
    drop(nodes);
    judge(&path, &options.judged)
}

fn lock<S>(server: &Mutex<S>) -> std::sync::MutexGuard<'_, S> {
    server.lock().unwrap_or_else(|lock| lock.into_inner())
}

/// What was done to the nodes and to the server.
#[derive(Default)]
struct Faults {
    kills: usize,
    /// How many nodes ended by themselves.
    aborts: usize,
    cuts: usize,
    crashes: u32,
}

/// Kills the nodes in turn, and starts others in their place; crashes the server; cuts the nodes
/// off in turn.
fn faults<S: Server>(
    options: &Options,
    dir: &Dir,
    server: &Mutex<S>,
    nodes: &mut [(Place, Process)],
    is_over: &AtomicBool,
) -> Result<Faults, String> {
    let mut done = Faults::default();
    let mut next_kill = Instant::now() + options.kill;
    let mut next_cut = Instant::now() + options.cut;
    let mut is_cut: Option<(usize, Instant)> = None;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        for (place, process) in &mut *nodes {
            let ended = process.0.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                if options.hard.abort == 0 {
                    return Err(format!("a node ended with {status}"));
                }
                done.aborts += 1;
                *process = place
                    .start(dir, options.lease)
                    .map_err(|error| error.to_string())?;
            }
        }
        if let Some((turn, end)) = is_cut {
            if Instant::now() < end {
                continue;
            }
            heal(&nodes[turn].0);
            is_cut = None;
            next_cut = Instant::now() + options.cut;
        }
        if !options.kill.is_zero() && Instant::now() >= next_kill {
            // The old process ends before another one takes its place.
            let (place, process) = &mut nodes[done.kills % options.nodes];
            process.kill();
            done.kills += 1;
            if done.crashes < options.crashes {
                lock(server).crash().map_err(|error| error.to_string())?;
                done.crashes += 1;
            }
            *process = place
                .start(dir, options.lease)
                .map_err(|error| error.to_string())?;
            next_kill = Instant::now() + options.kill;
        }
        if !options.cut.is_zero() && Instant::now() >= next_cut {
            let turn = done.cuts % options.nodes;
            if let Some(proxy) = &nodes[turn].0.proxy {
                // In every second partition, only the answers are lost: the server still obeys the
                // node's requests.
                match done.cuts % 2 {
                    0 => proxy.cut(),
                    _ => proxy.drop_answers(),
                }
                done.cuts += 1;
                is_cut = Some((turn, Instant::now() + 2 * options.lease));
            }
        }
    }
    nodes.iter().for_each(|(place, _)| heal(place));
    Ok(done)
}

fn heal(place: &Place) {
    if let Some(proxy) = &place.proxy {
        proxy.heal();
    }
}

/// Works until it is killed.
pub fn child(child: &Child) -> Outcome {
    match child.store {
        #[cfg(feature = "postgres")]
        Kind::Postgres => work::<server::Postgres>(child),
        #[cfg(feature = "redis")]
        Kind::Redis => work::<server::Redis>(child),
    }
}

fn work<S: Server>(child: &Child) -> Outcome {
    // Panics of handlers are a part of the test.
    std::panic::set_hook(Box::new(|_| {}));
    let history = Arc::new(History::append(&child.dir.join(HISTORY))?);
    Runtime::new()?.block_on(async {
        let queue = loop {
            match S::connect(child.port).await {
                Ok(store) => break Queue::new(store),
                // The server may be busy, or may not have started yet.
                Err(StoreError::Failed(_)) => sleep(Duration::from_millis(100)).await,
                Err(error) => return Err(error.into()),
            }
        };
        // The server runs on this machine, so its clock is this process' clock without the skew.
        let skew = child.skew;
        let clock = move || Time::from_micros(Time::wall().as_micros() - skew);
        println!("ready {}", stamp());
        let _node = node(&queue, &history, clock, |node| {
            node.window(Duration::from_secs(5)).lease(child.lease)
        });
        std::future::pending::<Outcome>().await
    })
}
