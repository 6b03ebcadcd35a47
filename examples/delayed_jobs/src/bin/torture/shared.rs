//! PostgreSQL: three nodes that work, and a parent that schedules jobs and kills a node now and
//! then.

use std::{
    env,
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

use clap::Args;
use tourbillon::Runtime;
use tourbillon_durable::{Queue, postgres::Postgres, store::StoreError};

use crate::{
    Outcome,
    embedded::{Dir, history},
    history::History,
    judge,
    load::{Load, drain, node},
    server::Server,
};

#[derive(Args)]
pub struct Options {
    /// How many jobs are scheduled.
    #[arg(long, value_name = "COUNT", default_value = "50000")]
    jobs: u64,
    /// The jobs are due within this time of their arrival.
    #[arg(
        long, value_name = "DURATION", default_value = "20s",
        value_parser = humantime::parse_duration,
    )]
    within: Duration,
    /// The time between two kills; zero kills nobody.
    #[arg(
        long, value_name = "DURATION", default_value = "2s",
        value_parser = humantime::parse_duration,
    )]
    kill: Duration,
    /// How often the server is crashed and started again, in turn with the nodes.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    crashes: u32,
    /// How many nodes work.
    #[arg(long, value_name = "COUNT", default_value = "3")]
    nodes: usize,
    /// The length of a lease.
    #[arg(
        long, value_name = "DURATION", default_value = "1500ms",
        value_parser = humantime::parse_duration,
    )]
    lease: Duration,
}

#[derive(Args)]
pub struct Child {
    dir: PathBuf,
    config: String,
    #[arg(value_parser = humantime::parse_duration)]
    lease: Duration,
}

/// A node in a process of its own.
struct Process(std::process::Child);

impl Process {
    fn start(dir: &Dir, config: &str, lease: Duration) -> Result<Self, Box<dyn std::error::Error>> {
        let mut child = Command::new(env::current_exe()?)
            .arg("shared-child")
            .arg(&dir.0)
            .arg(config)
            .arg(humantime::format_duration(lease).to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the node has no stdout")?;
        let process = Self(child);
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        if ready.trim() != "ready" {
            return Err("a node ended as it started".into());
        }
        Ok(process)
    }
}

impl Drop for Process {
    /// Kills the node by SIGKILL.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Schedules jobs, kills nodes until all jobs are done, and judges.
pub fn run(options: &Options) -> Outcome {
    let dir = Dir::new()?;
    let server = Mutex::new(Server::start()?);
    let config = lock(&server).config();
    let path = history(&dir.0);
    let file = Arc::new(History::append(&path)?);
    let is_over = AtomicBool::new(false);
    let runtime = Runtime::new()?;
    let queue = runtime
        .block_on(async { Ok::<_, StoreError>(Queue::new(Postgres::connect(&config).await?)) })?;
    let mut nodes = Vec::new();
    for _ in 0..options.nodes {
        nodes.push(Process::start(&dir, &config, options.lease)?);
    }
    let start = Instant::now();
    let kills = thread::scope(|scope| {
        let killer = scope.spawn(|| kill(options, &dir, &config, &server, &mut nodes, &is_over));
        runtime.block_on(async {
            let load = Load {
                prefix: "job".into(),
                clients: 200,
                jobs: options.jobs,
                within: options.within,
                pause: Duration::ZERO,
            };
            load.run(queue.clone(), file.clone()).await;
            println!("all jobs are scheduled after {:.1?}", start.elapsed());
            drain(&queue).await;
        });
        is_over.store(true, Ordering::Relaxed);
        killer.join().expect("the killer does not panic")
    })?;
    println!(
        "{} nodes, {} kills and {} crashes of the server, {:.1?}",
        options.nodes,
        kills.0,
        kills.1,
        start.elapsed()
    );
    drop(nodes);
    judge(&path)
}

fn lock(server: &Mutex<Server>) -> std::sync::MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(|lock| lock.into_inner())
}

/// Kills the nodes in turn, and starts others in their place. Returns how many nodes were killed,
/// and how often the server crashed.
fn kill(
    options: &Options,
    dir: &Dir,
    config: &str,
    server: &Mutex<Server>,
    nodes: &mut [Process],
    is_over: &AtomicBool,
) -> Result<(u32, u32), String> {
    let (mut kills, mut crashes) = (0, 0);
    let mut next = Instant::now() + options.kill;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        if options.kill.is_zero() || Instant::now() < next {
            continue;
        }
        let turn = kills as usize % nodes.len();
        // The old process ends before another one takes its place.
        let process = &mut nodes[turn];
        let _ = process.0.kill();
        let _ = process.0.wait();
        kills += 1;
        if crashes < options.crashes {
            lock(server).crash().map_err(|error| error.to_string())?;
            crashes += 1;
        }
        *process = Process::start(dir, config, options.lease).map_err(|error| error.to_string())?;
        next = Instant::now() + options.kill;
    }
    Ok((kills, crashes))
}

/// Works until it is killed.
pub fn child(child: &Child) -> Outcome {
    // Panics of handlers are a part of the test.
    std::panic::set_hook(Box::new(|_| {}));
    let history = Arc::new(History::append(&history(&child.dir))?);
    Runtime::new()?.block_on(async {
        let queue = Queue::new(Postgres::connect(&child.config).await?);
        let _node = node(&queue, &history, |node| {
            node.window(Duration::from_secs(5)).lease(child.lease)
        });
        println!("ready");
        std::future::pending::<Outcome>().await
    })
}
