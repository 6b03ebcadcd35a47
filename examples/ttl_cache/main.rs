//! A cache with key expiry that speaks RESP, redis's protocol: each key's expiry is one timer of the runtime.
//!
//! ```text
//! cargo run --release --example ttl_cache -- --listen 127.0.0.1:6379
//! redis-cli SET greeting hello PX 1500
//! ```
//!
//! | file | what is there |
//! |---|---|
//! | `options` | the program's arguments |
//! | `accept` | the task that accepts, and survives that it cannot |
//! | `connection` | one connection: its buffers, its idle timer, its end |
//! | `resp` | the parser of requests |
//! | `reply` | how replies are written |
//! | `commands` | what clients can ask for |
//! | `store` | the keys, and their timers |
//! | `stats` | what was done, and how late keys expired |

mod accept;
mod commands;
mod connection;
#[path = "../common/descriptors.rs"]
mod descriptors;
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

use std::{error::Error, sync::Arc};

use clap::Parser;
use tourbillon::{net::TcpListener, runtime::Builder, time::Instant};

use self::{options::Options, say::say, stats::Stats, stop::Stop, store::Store};

/// What all connections share.
struct Server {
    options: Options,
    stats: Arc<Stats>,
    store: Store,
    started: Instant,
}

impl Server {
    /// Counts a connection in, if there may be one more.
    fn enter(self: &Arc<Self>) -> Option<Client> {
        let fits = self.stats.clients.add_up_to(1, self.options.max_clients);
        fits.then(|| Client {
            server: self.clone(),
        })
    }
}

/// A connection's place among those that there may be; free again when this is dropped.
struct Client {
    server: Arc<Server>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.server.stats.clients.sub(1);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    // Refused, it stays as it is; the acceptor tells if that is too few.
    descriptors::raise_limit();
    let mut builder = Builder::new();
    if let Some(workers) = options.workers {
        builder = builder.worker_threads(workers.get());
    }
    let runtime = builder.build()?;

    let stats = Arc::new(Stats::default());
    let max_bytes = match options.max_memory {
        0 => u64::MAX,
        bytes => bytes,
    };
    let server = Arc::new(Server {
        store: Store::new(max_bytes, stats.clone()),
        stats,
        started: Instant::now(),
        options,
    });
    runtime.block_on(async {
        // From here on neither ends the process by itself.
        let mut stop = Stop::new()?;
        let addr = server.options.listen;
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|error| format!("cannot listen on {addr}: {error}"))?;
        say(&format!("listening on {}", listener.local_addr()?));
        tourbillon::spawn(accept::accept(listener, server.clone()));
        stop.recv().await?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    // A request that has begun to run is through by the end of its poll, so nothing is cut off here but connections.
    // Timers that are pending end with the runtime.
    drop(runtime);
    let stats = &server.stats;
    say(&format!(
        "served {} commands on {} connections; {} keys expired",
        stats.commands.get(),
        stats.connections.get(),
        stats.expired_by_timer.get() + stats.expired_on_access.get(),
    ));
    Ok(())
}
