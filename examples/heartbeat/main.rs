//! A TCP server that echoes lines, and closes connections that are idle for longer than they may be.
//! See README.md beside this.

#[path = "../common/accept.rs"]
mod accept;
mod connection;
#[path = "../common/descriptors.rs"]
mod descriptors;
#[path = "../common/room.rs"]
mod room;
#[path = "../common/say.rs"]
mod say;
mod stats;
#[path = "../common/stop.rs"]
mod stop;
#[path = "../common/trouble.rs"]
mod trouble;
#[path = "../common/values.rs"]
mod values;

use std::{error::Error, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use tourbillon::{Runtime, net::TcpListener};

use self::{
    connection::Rules,
    say::{complain, say},
    stats::Stats,
    stop::Stop,
    values::{count, positive},
};

/// Echoes lines, and closes connections that are idle for too long.
#[derive(Parser)]
struct Args {
    /// Where to listen; port 0 is one that the system chooses.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7777")]
    listen: String,
    /// For how long a connection may be without a whole line from its peer before it is closed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive)]
    idle: Duration,
    /// Send a line to a peer that was silent for so long, and again each time that it has been;
    /// without this, none.
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    heartbeat: Option<Duration>,
    /// How long a line may be, in bytes with its end. A longer one is an error, and the end of its
    /// connection.
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    max_line: u32,
    /// How many connections to have at once, the others wait; by default as many as there may be
    /// descriptors.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    max_connections: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("heartbeat: {error}"));
            ExitCode::FAILURE
        }
    }
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
        say(&format!("listening on {}", listener.local_addr()?));
        let serve = |stream| connection::serve(stream, rules, stats.clone());
        // Nothing is lost with a connection that waits for a line: no need to wait for its end.
        let left = accept::accept(listener, max, stop, Duration::ZERO, serve).await?;
        Ok::<_, Box<dyn Error>>(left)
    })?;
    drop(runtime);
    say(&stats.summary(left));
    Ok(())
}
