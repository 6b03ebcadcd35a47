//! The embedded store: a process that works, and a parent that kills it.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use clap::Args;
use tourbillon::Runtime;
use tourbillon_durable::{Queue, sqlite::Sqlite};

use crate::{
    Outcome,
    history::History,
    judge,
    load::{Load, drain, node, stamp},
};

#[derive(Args)]
pub struct Options {
    /// How often the process is killed.
    #[arg(long, value_name = "COUNT", default_value = "300")]
    rounds: u32,
    /// The seed of the moments.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    seed: u64,
}

#[derive(Args)]
pub struct Child {
    dir: PathBuf,
    /// Only does what is left, and ends.
    #[arg(long)]
    drain: bool,
}

#[derive(Args)]
pub struct Calm {
    /// How many jobs are scheduled.
    #[arg(long, value_name = "COUNT", default_value = "20000")]
    jobs: u64,
    /// The jobs are due within this time.
    #[arg(
        long, value_name = "DURATION", default_value = "20s",
        value_parser = humantime::parse_duration,
    )]
    within: Duration,
}

/// A directory that is removed in the end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> std::io::Result<Self> {
        let name = format!("durable-torture-{}-{}", std::process::id(), stamp());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn history(dir: &Path) -> PathBuf {
    dir.join("history")
}

/// Kills a process in each round, lets the last one end, and judges.
pub fn run(options: &Options) -> Outcome {
    let dir = Dir::new()?;
    fastrand::seed(options.seed);
    for _ in 0..options.rounds {
        let mut child = Command::new(env::current_exe()?)
            .arg("embedded-child")
            .arg(&dir.0)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut ready = String::new();
        let stdout = child.stdout.take().ok_or("the child has no stdout")?;
        BufReader::new(stdout).read_line(&mut ready)?;
        if ready.trim() != "ready" {
            return Err(format!("the child ended: {}", child.wait()?).into());
        }
        thread::sleep(Duration::from_micros(fastrand::u64(..300_000)));
        // SIGKILL.
        child.kill()?;
        child.wait()?;
    }
    let last = Command::new(env::current_exe()?)
        .arg("embedded-child")
        .arg(&dir.0)
        .arg("--drain")
        .stdout(Stdio::null())
        .status()?;
    if !last.success() {
        return Err(format!("the last process ended with {last}").into());
    }
    println!("the process was killed {} times", options.rounds);
    judge(&history(&dir.0))
}

/// Works until it is killed.
pub fn child(child: &Child) -> Outcome {
    // Panics of handlers are a part of the test.
    std::panic::set_hook(Box::new(|_| {}));
    let history = Arc::new(History::append(&history(&child.dir))?);
    Runtime::new()?.block_on(async {
        let queue = Queue::new(Sqlite::open(child.dir.join("jobs.db"))?);
        // A small window, so that the jobs of the load are in the store as well as in timers.
        let node = node(&queue, &history, |node| {
            node.window(Duration::from_millis(150)).most_held(200)
        });
        println!("ready");
        if child.drain {
            drain(&queue).await;
            node.stop(Duration::from_secs(60)).await;
            return Ok(());
        }
        let load = Load {
            prefix: format!("j{}-{}", stamp(), std::process::id()),
            clients: 16,
            jobs: u64::MAX,
            within: Duration::from_millis(400),
            pause: Duration::from_millis(2),
        };
        load.run(queue, history).await;
        Ok(())
    })
}

/// Runs without a fault, and judges.
pub fn calm(calm: &Calm) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    let dir = Dir::new()?;
    let path = history(&dir.0);
    let file = Arc::new(History::append(&path)?);
    Runtime::new()?.block_on(async {
        let queue = Queue::new(Sqlite::open(dir.0.join("jobs.db"))?);
        let node = node(&queue, &file, |node| node);
        let load = Load {
            prefix: "calm".into(),
            clients: 64,
            jobs: calm.jobs,
            within: calm.within,
            pause: Duration::ZERO,
        };
        load.run(queue.clone(), file).await;
        drain(&queue).await;
        node.stop(Duration::from_secs(60)).await;
        Ok::<(), tourbillon_durable::store::StoreError>(())
    })?;
    judge(&path)
}
