//! An HTTP server that answers a second later: see the README beside this file.

#[path = "../common/descriptors.rs"]
mod descriptors;
#[path = "../common/say.rs"]
mod say;
#[path = "../common/stop.rs"]
mod stop;

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use clap::Parser;
use tourbillon::{Runtime, net::TcpListener, time::sleep};

use self::{
    say::{complain, say},
    stop::Stop,
};

/// The longest delay that a client may ask for.
const LONGEST: Duration = Duration::from_secs(3600);

/// Answers HTTP requests after a delay.
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen; port 0 is one that the system chooses.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Listens with a socket for each worker, among which the kernel spreads the connections. Another
    /// server of the same user may then listen there, too.
    #[arg(long)]
    per_core: bool,
    /// How long the reply to `/` is delayed.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// For how long a connection may be without a request before it is closed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    idle: Duration,
    /// After Ctrl-C or SIGTERM, how long to wait for the requests that are being answered.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    drain: Duration,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    // Refused, it stays as it is; the server says if that is too few.
    descriptors::raise_limit();
    let runtime = Runtime::new()?;
    runtime.block_on(run(args))?;
    Ok(())
}

async fn run(args: Args) -> io::Result<()> {
    // From here on, neither ends the process by itself.
    let mut stop = Stop::new()?;
    let listeners: Vec<_> = if args.per_core {
        let listeners = TcpListener::bind_per_core(args.listen).await?;
        listeners.into_iter().collect()
    } else {
        vec![TcpListener::bind(args.listen).await?]
    };
    say(&format!("listening on {}", listeners[0].local_addr()?));
    tourbillon::axum::serve_all(listeners, router(args.delay))
        .header_read_timeout(args.idle)
        .keep_alive_timeout(args.idle)
        .shutdown_timeout(args.drain)
        .on_accept_error(|error| complain(&error.to_string()))
        // An error says that the runtime is shut down: then it is time, too.
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

/// No thread waits, only a timer of the worker that answers.
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
