//! An HTTP server that answers a second later: see the README beside this file.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use clap::Parser;
use rustix::process::{Resource, getrlimit, setrlimit};
use tourbillon::{
    Runtime,
    net::TcpListener,
    signal::{Signal, signal},
    time::sleep,
};

/// The longest delay that a client may ask for.
const LONGEST: Duration = Duration::from_secs(3600);

/// Answers HTTP requests after a delay.
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen; port 0 is one that the system chooses.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
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
    raise_descriptor_limit();
    let runtime = Runtime::new()?;
    runtime.block_on(run(args))?;
    Ok(())
}

async fn run(args: Args) -> io::Result<()> {
    // From here on, neither ends the process by itself.
    let signals = [signal(libc::SIGINT)?, signal(libc::SIGTERM)?];
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    tourbillon::axum::serve(listener, router(args.delay))
        .header_read_timeout(args.idle)
        .keep_alive_timeout(args.idle)
        .shutdown_timeout(args.drain)
        .on_accept_error(|error| eprintln!("{error}"))
        .with_graceful_shutdown(any_of(signals))
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

/// Waits for the first of some signals.
async fn any_of<const N: usize>(mut signals: [Signal; N]) {
    let signals = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    // An error says that the runtime is shut down: then it is time, too.
    let _ = futures::future::select_all(signals).await;
}

/// A connection costs a descriptor: takes as many as the system lets us, of which it grants 1024
/// unasked, for the sake of programs that use `select`.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, the limit stays as it is; the server says if that is too few.
    let _ = setrlimit(Resource::Nofile, limit);
}
