//! A process without faults: measures the lateness.

use std::{path::Path, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use humantime::parse_duration as duration;
use tourbillon::Runtime;
use tourbillon_jobs::{Queue, Time, sqlite::Sqlite, store::Store};
use tourbillon_support::dir::Dir;

#[cfg(any(feature = "postgres", feature = "redis"))]
use crate::server::{self, Server};
use crate::{
    Judged, Outcome,
    embedded::HISTORY,
    history::History,
    judge,
    load::{Hard, Load, bury, drain, node},
};

#[derive(Args)]
pub struct Options {
    /// How many jobs are scheduled.
    #[arg(long, value_name = "COUNT", default_value = "20000")]
    jobs: u64,
    /// The jobs are due within this time.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    within: Duration,
    /// The store.
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Kind,
    #[command(flatten)]
    judged: Judged,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "redis")]
    Redis,
}

/// Runs without a fault, and judges.
pub fn run(options: &Options) -> Outcome {
    // Panics of handlers are a part of the load.
    std::panic::set_hook(Box::new(|_| {}));
    let dir = Dir::new();
    let path = dir.path(HISTORY);
    let runtime = Runtime::new()?;
    match options.store {
        Kind::Sqlite => runtime
            .block_on(async { work(options, Sqlite::open(dir.path("jobs.db"))?, &path).await })?,
        #[cfg(feature = "postgres")]
        Kind::Postgres => on_server::<server::Postgres>(options, &runtime, &path)?,
        #[cfg(feature = "redis")]
        Kind::Redis => on_server::<server::Redis>(options, &runtime, &path)?,
    }
    judge(&path, &options.judged)
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn on_server<S: Server>(options: &Options, runtime: &Runtime, path: &Path) -> Outcome {
    let server = S::start()?;
    runtime.block_on(async { work(options, S::connect(server.port()).await?, path).await })
}

async fn work<S: Store>(options: &Options, store: S, path: &Path) -> Outcome {
    let history = Arc::new(History::append(path)?);
    let queue = Queue::new(store);
    let node = node(&queue, &history, Time::wall, |node| node);
    let load = Load {
        prefix: "calm".into(),
        clients: 64,
        jobs: options.jobs,
        within: options.within,
        pause: Duration::ZERO,
        hard: Hard::default(),
    };
    load.run(queue.clone(), history.clone()).await;
    drain(&queue, |_| {}).await;
    bury(&queue, &history).await;
    node.stop(Duration::from_secs(60)).await;
    Ok(())
}
