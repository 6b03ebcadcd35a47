//! `tourbillon serve`: HTTP/1.1 through hyper, on the runtime's sockets and timers.
//!
//! | file | content |
//! |---|---|
//! | `accept` | the accept loop, which continues after errors |
//! | `connection` | one connection: its requests, its idle timer, its end |
//! | `stats` | counts of connections and requests |

mod accept;
mod connection;
mod stats;

use std::{fmt, process::ExitCode, sync::Arc, time::Duration};

use hyper::body::Bytes;
use tourbillon::{
    net::TcpListener,
    time::{Instant, timeout},
};
use tourbillon_hyper::server::{Connections, default_max_connections};

use self::stats::Stats;
use crate::{
    args::{Addrs, RuntimeArgs, count, duration, positive_duration},
    complain,
    record::Traces,
    say::say,
    server::{Stop, first, raise_descriptor_limit},
};

/// Arguments of `tourbillon serve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = stats::HELP)]
pub(crate) struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(
        long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080",
        value_parser = Addrs::parse,
    )]
    listen: Addrs,
    /// Delay before each reply.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    delay: Duration,
    /// Close a connection after this time without a request.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    idle: Duration,
    /// After Ctrl-C, wait up to this long for pending replies.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    drain: Duration,
    /// Maximum number of open connections; more clients wait [default: the descriptor limit, less a
    /// reserve].
    #[arg(long, value_name = "N", value_parser = count)]
    max_connections: Option<u32>,
    /// Answer clients that close their writing half after a request. The server then notices a
    /// client that went away only when it replies.
    #[arg(long)]
    half_close: bool,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// State that all connections share.
struct Server {
    delay: Duration,
    idle: Duration,
    max_connections: usize,
    half_close: bool,
    body: Bytes,
    stats: Stats,
    connections: Connections,
}

/// Serves until Ctrl-C or SIGTERM, then prints a summary.
pub(crate) fn run(args: Args) -> Result<ExitCode, String> {
    raise_descriptor_limit();
    let runtime = args.runtime.builder().build().map_err(to_text)?;
    Traces::listen()?.show(&runtime);
    let page = args.runtime.inspect(&runtime)?;
    let server = Arc::new(Server {
        delay: args.delay,
        idle: args.idle,
        max_connections: match args.max_connections {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => default_max_connections(),
        },
        half_close: args.half_close,
        body: format!("hello after {}\n", humantime::format_duration(args.delay)).into(),
        stats: Stats::default(),
        connections: Connections::default(),
    });
    // Listen to signals before the address is printed: a caller may send one right after it.
    let (listener, mut stop) = runtime.block_on(async {
        let stop = Stop::new().map_err(to_text)?;
        let listener = TcpListener::bind(&*args.listen.addrs)
            .await
            .map_err(|error| args.listen.cannot_listen("--listen", &error, page))?;
        Ok::<_, String>((listener, stop))
    })?;
    let addr = listener.local_addr().map_err(to_text)?;
    // If this line is lost, the server serves, and ends with a failure.
    say(format_args!("listening on {addr}"));
    let start = Instant::now();
    let acceptor = runtime.spawn(accept::accept(listener, server.clone()));

    runtime.block_on(async {
        // Serve until a signal comes, then drop the listener.
        stop.recv().await.map_err(to_text)?;
        acceptor.abort();
        // Once this returns, the acceptor has dropped the listener: new connections are refused.
        drop(acceptor.await);
        // Idle connections close at once. Wait for pending replies, up to the limit or another
        // signal.
        let open = server.connections.close();
        if open > 0 {
            let drain = humantime::format_duration(args.drain);
            complain(format_args!(
                "waiting up to {drain} for {open} open connections; press Ctrl-C again to stop at \
                 once"
            ));
            let drained = first(server.connections.at_most(0), stop.recv());
            drop(timeout(args.drain, drained).await);
        }
        Ok::<_, String>(())
    })?;
    // Cut off the connections that are still open.
    drop(runtime);
    say(server.stats.summary(start.elapsed()));
    Ok(ExitCode::SUCCESS)
}

fn to_text(error: impl fmt::Display) -> String {
    error.to_string()
}
