//! A TCP server that echoes lines and closes idle connections. See the README in this directory.

mod connection;
mod stats;

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

use self::{connection::Rules, stats::Stats};

/// Echo lines, and close idle connections.
#[derive(Parser)]
struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7777")]
    listen: String,
    /// Close a connection after this time without a whole line from its peer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive)]
    idle: Duration,
    /// Send a heartbeat line to a peer after each period of silence of this length [default:
    /// never].
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    heartbeat: Option<Duration>,
    /// Maximum length of a line in bytes, with its line feed. A longer line is an error and ends
    /// its connection.
    #[arg(
        long, value_name = "BYTES", default_value = "4096",
        value_parser = clap::value_parser!(u32).range(2..=1 << 20),
    )]
    max_line: u32,
    /// Maximum number of connections; more clients wait [default: as many as the descriptor limit
    /// allows].
    #[arg(long, value_name = "COUNT", value_parser = count)]
    max_connections: Option<usize>,
}

fn main() -> ExitCode {
    say::end("heartbeat", run(&arguments()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    if args.heartbeat.is_some_and(|beat| beat >= args.idle) {
        return Err("--heartbeat must be shorter than --idle, or none is ever sent".into());
    }
    let max = room::room_for(args.max_connections, 1)?;
    let rules = Rules {
        idle: args.idle,
        heartbeat: args.heartbeat,
        max_line: args.max_line as usize,
    };
    let stats = Arc::new(Stats::default());

    let runtime = Runtime::new()?;
    let left = runtime.block_on(async {
        let stop = Stop::new()?;
        let listener = TcpListener::bind(&*args.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
        say(format_args!("listening on {}", listener.local_addr()?));
        let serve = |stream| connection::serve(stream, rules, stats.clone());
        // An idle connection loses nothing, so do not wait for connections to end.
        let left = accept::accept(listener, max, stop, Duration::ZERO, serve).await?;
        Ok::<_, Box<dyn Error>>(left)
    })?;
    drop(runtime);
    say(stats.summary(left));
    Ok(())
}
