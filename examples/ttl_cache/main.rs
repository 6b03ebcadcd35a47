//! A cache with key expiry that speaks RESP, redis's protocol. Each key's expiry is one timer of
//! the runtime.
//!
//! ```text
//! cargo run --release -p tourbillon-examples --example ttl_cache -- --listen 127.0.0.1:6379
//! redis-cli SET greeting hello PX 1500
//! ```
//!
//! | file | content |
//! |---|---|
//! | `options` | command-line options |
//! | `accept` | the accept loop, which continues after errors |
//! | `clients` | the connected clients |
//! | `connection` | one connection: its buffers, its idle timer, its end |
//! | `resp` | the parser of requests |
//! | `reply` | the encoder of replies |
//! | `commands` | the commands |
//! | `glob` | the patterns of KEYS and SCAN |
//! | `store` | the keys and their timers |
//! | `stats` | counters, and the lateness of expired keys |

mod accept;
#[path = "../common/arguments.rs"]
mod arguments;
mod clients;
mod commands;
mod connection;
#[path = "../common/descriptors.rs"]
mod descriptors;
mod glob;
mod options;
mod reply;
mod resp;
#[path = "../common/say.rs"]
mod say;
mod stats;
#[path = "../common/stop.rs"]
mod stop;
mod store;
#[path = "../common/trouble.rs"]
mod trouble;

use std::{
    error::Error,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tourbillon::{net::TcpListener, runtime::Builder, time::Instant};

use self::{
    arguments::arguments,
    clients::Clients,
    options::Options,
    say::{complain, say},
    stats::Stats,
    stop::Stop,
    store::Store,
};

/// State that all connections share.
struct Server {
    options: Options,
    stats: Arc<Stats>,
    store: Store,
    clients: Clients,
    started: Instant,
    /// Time of the last warning about HTTP, in seconds after `started`, plus one; 0 before the
    /// first.
    warned: AtomicU64,
}

impl Server {
    /// Warns that a client speaks HTTP, at most once a minute.
    fn warn_of_http(&self) {
        const SILENCE: u64 = 60;
        let now = self.started.elapsed().as_secs() + 1;
        let is_due = |last: u64| (last == 0 || now >= last + SILENCE).then_some(now);
        if self.warned.fetch_update(Relaxed, Relaxed, is_due).is_ok() {
            complain(
                "possible SECURITY ATTACK: a client sends POST or Host: commands, as a browser \
                 does that is used to reach this port; connection closed",
            );
        }
    }
}

fn main() -> ExitCode {
    say::end("ttl_cache", run(arguments()))
}

fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // If this fails, the limit stays as it is. The acceptor reports running out of descriptors.
    descriptors::raise_limit();
    let mut builder = Builder::new();
    if let Some(workers) = options.workers {
        builder = builder.worker_threads(workers.get());
    }
    let runtime = builder.build()?;

    let stats = Arc::new(Stats::default());
    let server = Arc::new(Server {
        store: Store::new(options.max_bytes(), stats.clone()),
        stats,
        clients: Clients::default(),
        started: Instant::now(),
        warned: AtomicU64::new(0),
        options,
    });
    runtime.block_on(async {
        // From here on the signals do not end the process by themselves.
        let mut stop = Stop::new()?;
        let addr = server.options.listen;
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|error| format!("cannot listen on {addr}: {error}"))?;
        say(format_args!("listening on {}", listener.local_addr()?));
        tourbillon::spawn(accept::accept(listener, server.clone()));
        stop.recv().await?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    // A request runs within one poll, so dropping the runtime interrupts none. It closes the
    // connections and drops pending timers.
    drop(runtime);
    let stats = &server.stats;
    say(format_args!(
        "served {} commands on {} connections; {} keys expired",
        stats.commands.get(),
        stats.connections.get(),
        stats.expired_by_timer.get() + stats.expired_on_access.get(),
    ));
    Ok(())
}
