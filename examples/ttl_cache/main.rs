//! A cache whose keys expire when nobody reads them. See the README in this directory.

mod cache;
mod connection;

use std::{error::Error, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use tourbillon::{Runtime, net::TcpListener};
use tourbillon_examples::{
    accept,
    arguments::arguments,
    room,
    say::{self, say},
    server::Stop,
    values::{count, positive},
};

use self::cache::Cache;

/// Keep values that expire when nobody reads them.
#[derive(Parser)]
struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7780")]
    listen: String,
    /// Remove a key after this time in which nobody has read it.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = positive)]
    idle: Duration,
    /// Maximum of the bytes of keys and values, and 320 bytes for each key.
    #[arg(long, value_name = "BYTES", default_value = "67108864")]
    max_bytes: u64,
    /// Maximum number of connections; more clients wait [default: as many as the descriptor limit
    /// allows].
    #[arg(long, value_name = "COUNT", value_parser = count)]
    max_connections: Option<usize>,
}

fn main() -> ExitCode {
    say::end("ttl_cache", run(&arguments()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let max = room::room_for(args.max_connections, 1)?;
    let cache = Arc::new(Cache::new(args.max_bytes));
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let stop = Stop::new()?;
        let listener = TcpListener::bind(&*args.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
        say(format_args!("listening on {}", listener.local_addr()?));
        let serve = |stream| connection::serve(stream, cache.clone(), args.idle);
        // A request is answered within one poll, so do not wait for connections to end.
        accept::accept(listener, max, stop, Duration::ZERO, serve).await?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    // This drops the timers that wait.
    drop(runtime);
    say(connection::summary(&cache));
    Ok(())
}
