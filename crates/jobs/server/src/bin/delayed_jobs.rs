//! Runs a command for each delayed job, and serves the API and the page. See `README.md`.

#[path = "delayed_jobs/command.rs"]
mod command;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use futures_lite::future::or;
use humantime::parse_duration as duration;
use tokio::sync::oneshot;
use tourbillon::{
    Runtime,
    net::TcpListener,
    signal::{SignalKind, signal},
};
use tourbillon_axum::SameOrigin;
use tourbillon_jobs::{
    Attempt, Backoff, Failure, Node, Queue,
    queue::{MAX_KIND, MAX_QUEUE},
    sqlite::Sqlite,
    store::Store,
};
use tourbillon_jobs_server::{metrics_router, router_for};

use tourbillon_support::{
    arguments::{arguments, tame},
    say::{self, say, shown},
};

/// Run a command for each delayed job, and serve an API and a page for them.
#[derive(Parser)]
struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Answer requests to this host name, too, such as that of a proxy, and not only to IP
    /// addresses and `localhost`. May be repeated.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// File of the embedded store.
    #[arg(long, value_name = "FILE", default_value = "jobs.db", group = "place")]
    store: PathBuf,
    /// Store the jobs in PostgreSQL instead, which many processes may share:
    /// `host=HOST port=PORT user=USER dbname=NAME`. With feature `tls`, also
    /// `sslmode=verify-full sslrootcert=FILE sslcert=FILE sslkey=FILE`, as for libpq. `host=A,B`
    /// names several servers, of which the one that takes writes is used.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "CONFIG", group = "place")]
    postgres: Option<String>,
    /// Store the jobs in Redis or Valkey instead, which many processes may share:
    /// `redis://HOST:PORT/DATABASE`. With feature `tls`, also
    /// `rediss://HOST:PORT/DATABASE?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE`.
    #[cfg(feature = "redis")]
    #[arg(long, value_name = "URL", group = "place")]
    redis: Option<String>,
    /// Make the tables in PostgreSQL or the store in Redis, or bring those of an earlier version to
    /// this one, and end. After that, another user of PostgreSQL without the right to make tables
    /// is enough. The embedded store does this by itself.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    #[arg(long, conflicts_with = "store")]
    migrate: bool,
    /// Shell command for each job. It gets the payload on its standard input, and the variables
    /// JOB_KEY, JOB_KIND, JOB_QUEUE, JOB_ATTEMPT and JOB_TOKEN, and TRACEPARENT if the job carries
    /// a trace context. If it fails, the job is tried again. Without a command, each job prints a
    /// line.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Run only jobs of this kind, and leave the others to other programs. May be repeated. The
    /// empty name is for jobs without a kind. Without this option, jobs of all kinds are run.
    #[arg(long, value_name = "NAME", value_parser = kind)]
    kind: Vec<String>,
    /// Run jobs of this queue, at most COUNT of them at once, and leave other queues to other
    /// programs. May be repeated. Without this option, jobs of the queue `default` are run.
    #[arg(long, value_name = "NAME[=COUNT]", value_parser = queue)]
    queue: Vec<(String, usize)>,
    /// How long an attempt may take. Then it has failed, and the process group of its command gets
    /// SIGTERM, and after 5 s SIGKILL.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
    timeout: Duration,
    /// How many attempts run at once.
    #[arg(long, value_name = "COUNT", default_value = "256", value_parser = one_or_more)]
    concurrency: u32,
    /// How many attempts a job has.
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = one_or_more)]
    attempts: u32,
    /// The wait after the first attempt. It doubles with each further one.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    backoff: Duration,
    /// After Ctrl-C or SIGTERM, wait up to this long for the jobs that run. Commands that still run
    /// then are left alone, and their jobs will be run again.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    drain: Duration,
}

fn one_or_more(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 or more".into()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

fn kind(text: &str) -> Result<String, String> {
    match text.len() <= MAX_KIND && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "must have at most {MAX_KIND} bytes, and no control characters"
        )),
    }
}

/// Parses the name of a queue, and how many of its attempts run at once.
fn queue(text: &str) -> Result<(String, usize), String> {
    let (name, most) = match text.rsplit_once('=') {
        Some((name, most)) => (name, one_or_more(most)? as usize),
        None => (text, usize::MAX),
    };
    match (1..=MAX_QUEUE).contains(&name.len()) && !name.contains(char::is_control) {
        true => Ok((name.to_owned(), most)),
        false => Err(format!(
            "the name must have 1 to {MAX_QUEUE} bytes, and no control characters"
        )),
    }
}

fn main() -> ExitCode {
    say::end("delayed_jobs", start(arguments()))
}

fn start(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let ended = runtime.block_on(async {
        #[cfg(feature = "postgres")]
        if let Some(config) = &args.postgres {
            if args.migrate {
                tourbillon_jobs::postgres::Postgres::migrate(config).await?;
                return Ok(true);
            }
            let store = tourbillon_jobs::postgres::Postgres::connect(config).await?;
            return serve(&args, store).await;
        }
        #[cfg(feature = "redis")]
        if let Some(url) = &args.redis {
            if args.migrate {
                tourbillon_jobs::redis::Redis::migrate(url).await?;
                return Ok(true);
            }
            let store = tourbillon_jobs::redis::Redis::connect(url).await?;
            return serve(&args, store).await;
        }
        let store =
            Sqlite::open(&args.store).map_err(|error| format!("{}: {error}", tame(&args.store)))?;
        serve(&args, store).await
    });
    command::end();
    match ended {
        Ok(true) => drop(runtime),
        // Do not wait for the jobs that still run.
        _ => runtime.shutdown_background(),
    }
    ended.map(drop)
}

/// Serves until a signal arrives. Returns whether all jobs ended in time.
async fn serve<S: Store>(args: &Args, store: S) -> Result<bool, Box<dyn Error>> {
    let mut names = args.allow_host.iter();
    let guard = names.try_fold(SameOrigin::new(), SameOrigin::allow_host)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let queue = Queue::new(store);
    let exec = args.exec.clone();
    let handler = move |attempt| run(exec.clone(), attempt);
    let node = Node::builder(queue.clone())
        .backoff(Backoff {
            attempts: args.attempts,
            first: args.backoff,
            ..Backoff::default()
        })
        .attempt_timeout(args.timeout)
        .concurrency(args.concurrency as usize);
    // The last one of a name counts.
    let queues: BTreeMap<_, _> = args.queue.iter().cloned().collect();
    let node = queues
        .into_iter()
        .fold(node, |node, (name, most)| node.queue(name, most));
    let kinds: BTreeSet<_> = args.kind.iter().collect();
    let node = match kinds.is_empty() {
        true => node.on_other(handler),
        false => kinds
            .into_iter()
            .fold(node, |node, kind| node.on_kind(kind, handler.clone())),
    };
    let node = node.start_kinds();
    say(format_args!("open http://{}/", listener.local_addr()?));
    let (drain, (sender, stopped)) = (args.drain, oneshot::channel());
    let metrics = metrics_router(queue.clone(), node.metrics_reader(), guard.clone());
    let router = router_for(queue, guard).merge(metrics);
    tourbillon_axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            // An error means that the runtime shuts down, so the server must end, too.
            let _ = or(interrupt.recv(), terminate.recv()).await;
            // The node waits for its attempts while the server waits for its requests.
            let _ = sender.send(tourbillon::spawn(node.stop(drain)));
        })
        .shutdown_timeout(drain)
        .await?;
    let all_ended = stopped.await?.await?;
    if !all_ended {
        say("some jobs still run; they will be run again");
    }
    Ok(all_ended)
}

/// Runs the command of one attempt, or prints a line.
async fn run(exec: Option<String>, attempt: Attempt) -> Result<(), Failure> {
    let Some(command) = exec else {
        let payload = String::from_utf8_lossy(&attempt.payload);
        let (key, payload) = (shown(&attempt.key), shown(&payload));
        say(format_args!(
            "{key} (attempt {}): {payload}",
            attempt.number
        ));
        return Ok(());
    };
    command::run(command, attempt).await
}
