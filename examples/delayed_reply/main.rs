//! An HTTP server that replies after a delay. See the README in this directory.

use std::{io, net::SocketAddr, process::ExitCode, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use clap::Parser;
use tourbillon::{Runtime, net::TcpListener, time::sleep};
use tourbillon_examples::{
    arguments::arguments,
    say::{self, complain, say},
    server::{Stop, raise_descriptor_limit},
};

/// The longest delay that a client may ask for.
const LONGEST: Duration = Duration::from_secs(3600);

/// Answer HTTP requests after a delay.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Use one listening socket per worker; the kernel spreads the connections. Then another server
    /// of the same user can listen on the same port.
    #[arg(long)]
    per_core: bool,
    /// Delay of the reply to `/`.
    #[arg(
        long, value_name = "DURATION", default_value = "1s",
        value_parser = humantime::parse_duration,
    )]
    delay: Duration,
    /// Close a connection after this time without a request.
    #[arg(
        long, value_name = "DURATION", default_value = "30s",
        value_parser = humantime::parse_duration,
    )]
    idle: Duration,
    /// After Ctrl-C or SIGTERM, wait up to this long for pending replies.
    #[arg(
        long, value_name = "DURATION", default_value = "10s",
        value_parser = humantime::parse_duration,
    )]
    drain: Duration,
}

fn main() -> ExitCode {
    say::end("delayed_reply", start(arguments()))
}

fn start(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    // If this fails, the limit stays as it is. The server reports running out of descriptors.
    raise_descriptor_limit();
    let runtime = Runtime::new()?;
    runtime.block_on(run(args))?;
    Ok(())
}

async fn run(args: Args) -> io::Result<()> {
    // From here on the signals do not end the process by themselves.
    let mut stop = Stop::new()?;
    let listeners: Vec<_> = if args.per_core {
        let listeners = TcpListener::bind_per_core(args.listen).await?;
        listeners.into_iter().collect()
    } else {
        vec![TcpListener::bind(args.listen).await?]
    };
    say(format_args!("listening on {}", listeners[0].local_addr()?));
    tourbillon_axum::serve_all(listeners, router(args.delay))
        .header_read_timeout(args.idle)
        .keep_alive_timeout(args.idle)
        .shutdown_timeout(args.drain)
        .on_accept_error(|error| complain(error))
        // An error means that the runtime shuts down, so the server must end, too.
        .with_graceful_shutdown(async move { drop(stop.recv().await) })
        .await
}

fn router(delay: Duration) -> Router {
    Router::new()
        .route("/", get(delayed))
        .route("/delay/{ms}", get(delayed_by))
        .route("/hello", get(hello))
        .with_state(delay)
}

/// Answers after the delay. Only a timer waits, no thread.
async fn delayed(State(delay): State<Duration>) -> String {
    sleep(delay).await;
    format!("hello after {}\n", humantime::format_duration(delay))
}

async fn delayed_by(Path(ms): Path<u64>) -> Result<String, (StatusCode, String)> {
    let delay = Duration::from_millis(ms);
    if delay > LONGEST {
        let most = LONGEST.as_millis();
        return Err((StatusCode::BAD_REQUEST, format!("{most} ms at most\n")));
    }
    Ok(delayed(State(delay)).await)
}

async fn hello() -> Json<&'static str> {
    Json("hello")
}
