//! `tourbillon serve`: HTTP/1.1, through hyper, on the runtime's sockets and timers.
//!
//! | file | what is there |
//! |---|---|
//! | `accept` | the task that accepts, and survives that it cannot |
//! | `accept_error` | which errors it waits after, and for how long (the library's `serve` has it, too) |
//! | `connection` | one connection: its requests, its idle timer, its end |
//! | `gate` | which connections are open; how they hear that the server closes (the library's `serve` has it, too) |
//! | `stats` | what was served |

mod accept;
#[path = "../../../integrations/axum/accept_error.rs"]
mod accept_error;
mod connection;
#[path = "../../../integrations/axum/gate.rs"]
mod gate;
mod stats;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use hyper::body::Bytes;
use tourbillon::{
    net::TcpListener,
    time::{Instant, timeout},
};

use self::{
    gate::{Gate, room},
    stats::Stats,
};
use crate::{
    args::{
        Addrs, RuntimeArgs, count, descriptor_limit, duration, positive_duration,
        raise_descriptor_limit,
    },
    complain,
    stop::{Stop, first},
};

/// Arguments of `tourbillon serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 is one that the system chooses.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = Addrs::parse)]
    listen: Addrs,
    /// How long each reply is delayed.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    delay: Duration,
    /// For how long a connection may be without a request before it is closed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    idle: Duration,
    /// After Ctrl-C, how long to wait for the requests that are being answered.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    drain: Duration,
    /// How many connections may be open; further ones wait [default: as many as there are
    /// descriptors for].
    #[arg(long, value_name = "N", value_parser = count)]
    max_connections: Option<u32>,
    /// Answers clients that close their writing half after a request. Those that go away are not
    /// noticed then before they are answered.
    #[arg(long)]
    half_close: bool,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// What all connections share.
struct Server {
    delay: Duration,
    idle: Duration,
    max_connections: usize,
    half_close: bool,
    body: Bytes,
    stats: Stats,
    gate: Gate,
}

/// Serves until Ctrl-C or SIGTERM, and says what it served.
pub(crate) fn run(args: Args) -> Result<ExitCode, String> {
    raise_descriptor_limit();
    let runtime = args.runtime.builder().build().map_err(said)?;
    let page = args.runtime.inspect(&runtime)?;
    let server = Arc::new(Server {
        delay: args.delay,
        idle: args.idle,
        max_connections: match args.max_connections {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => room(descriptor_limit()),
        },
        half_close: args.half_close,
        body: format!("hello after {}\n", humantime::format_duration(args.delay)).into(),
        stats: Stats::default(),
        gate: Gate::default(),
    });
    let (listener, mut stop) = runtime.block_on(async {
        let stop = Stop::new().map_err(said)?;
        let listener = TcpListener::bind(&*args.listen.addrs)
            .await
            .map_err(|error| args.listen.cannot_listen("--listen", &error, page))?;
        Ok::<_, String>((listener, stop))
    })?;
    // Where nobody reads it any more, there is no use in saying it, nor in ending for it.
    let addr = listener.local_addr().map_err(said)?;
    let _ = say(format_args!("listening on {addr}"));
    let start = Instant::now();
    let acceptor = runtime.spawn(accept::accept(listener, server.clone()));

    runtime.block_on(async {
        stop.recv().await.map_err(said)?;
        acceptor.abort();
        // Its answer, that it was aborted, comes when the listener is gone.
        drop(acceptor.await);
        let open = server.gate.close();
        if open > 0 {
            let drain = humantime::format_duration(args.drain);
            complain(format_args!(
                "draining {open} connections, for {drain} at most; once more to stop at once"
            ));
            let drained = first(server.gate.at_most(0), stop.recv());
            drop(timeout(args.drain, drained).await);
        }
        Ok::<_, String>(())
    })?;
    // What is still open is cut off here.
    drop(runtime);
    let _ = say(format_args!("{}", server.stats.summary(start.elapsed())));
    Ok(ExitCode::SUCCESS)
}

fn said(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Prints a line at once, also into a pipe.
fn say(line: fmt::Arguments<'_>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
