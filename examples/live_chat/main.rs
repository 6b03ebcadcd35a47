//! A chat in the browser, over WebSockets. See the README in this directory.

#[path = "../common/arguments.rs"]
mod arguments;
mod connection;
#[path = "../common/descriptors.rs"]
mod descriptors;
mod handshake;
mod lateness;
mod lobby;
#[path = "../common/room.rs"]
mod room;
#[path = "../common/say.rs"]
mod say;
#[path = "../common/stop.rs"]
mod stop;
mod tls;
#[path = "../common/values.rs"]
mod values;

use std::{
    error::Error,
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{any, get},
};
use clap::Parser;
use hyper::upgrade::on;
use serde::Deserialize;
use tourbillon::{Runtime, net::TcpListener};
use tourbillon_axum::{ListenerExt, SameOrigin, serve};
use tourbillon_hyper::FuturesIo;

use self::{
    arguments::arguments,
    handshake::accept,
    lobby::{Lobby, Rules},
    say::say,
    stop::Stop,
    values::{count, positive},
};

/// The page's own script and style are in the page. It loads nothing else, and the browser refuses
/// to make HTML from text.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Serve a page on which people chat, over WebSockets.
#[derive(Parser)]
struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Answer requests to this host name, too, and not only to IP addresses and `localhost`. May be
    /// repeated.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Serve over TLS, with a new certificate for `localhost` that no browser knows. Browsers then
    /// use HTTP/2.
    #[arg(long)]
    tls: bool,
    /// Send a ping to each client after each period of this length.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    heartbeat: Duration,
    /// Remove a client after this time without an answer to a ping, or another frame.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = positive)]
    idle: Duration,
    /// How much later than these times the server may be, to do several clients' work at once.
    #[arg(
        long, value_name = "DURATION", default_value = "250ms",
        value_parser = humantime::parse_duration,
    )]
    tolerance: Duration,
    /// Maximum number of clients.
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = count)]
    max_clients: usize,
    /// Maximum number of messages that wait until a client takes them. A client with more is
    /// removed.
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = count)]
    max_queue: usize,
    /// After Ctrl-C or SIGTERM, wait up to this long until all clients know.
    #[arg(
        long, value_name = "DURATION", default_value = "10s",
        value_parser = humantime::parse_duration,
    )]
    drain: Duration,
}

fn main() -> ExitCode {
    say::end("live_chat", start(&arguments()))
}

fn start(args: &Args) -> Result<(), Box<dyn Error>> {
    if args.heartbeat >= args.idle {
        return Err("--heartbeat must be shorter than --idle, or all clients are idle".into());
    }
    room::room_for(Some(args.max_clients), 1)?;
    let runtime = Runtime::new()?;
    let left = runtime.block_on(run(args))?;
    // The HTTP server does not wait for WebSockets of HTTP/1, which have left it. Wait for their
    // tasks here.
    runtime.shutdown_graceful(left);
    Ok(())
}

/// Serves until a signal comes and the requests have ended. Returns what is then left of `--drain`.
async fn run(args: &Args) -> Result<Duration, Box<dyn Error>> {
    let mut names = args.allow_host.iter();
    let guard = names.try_fold(SameOrigin::new(), SameOrigin::allow_host)?;
    let mut stop = Stop::new()?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let addr = listener.local_addr()?;
    let lobby = Arc::new(Lobby::new(Rules {
        heartbeat: args.heartbeat,
        idle: args.idle,
        tolerance: args.tolerance,
        max_clients: args.max_clients,
        max_queue: args.max_queue,
    }));
    let router = Router::new()
        .route("/", get(page))
        .route("/ws", any(enter))
        // Browsers let a page of any site open a WebSocket.
        .layer(guard)
        .with_state(lobby.clone());
    let measured = lobby.clone();
    let measuring = tourbillon::spawn(async move { measured.lateness.measure().await });
    let stopped_at = Arc::new(OnceLock::new());
    let stopping = stopped_at.clone();
    let ended = async move {
        // An error means that the runtime shuts down, so the server must end, too.
        let _ = stop.recv().await;
        let _ = stopping.set(Instant::now());
        lobby.close();
    };

    say(format_args!("listening on {addr}"));
    if args.tls {
        let (acceptor, _) = tls::self_signed(&["localhost", &addr.ip().to_string()])?;
        say(format_args!("open https://{addr}/"));
        let listener = listener.handshake(move |stream| {
            let accepted = acceptor.accept(stream);
            async { Ok(FuturesIo::new(accepted.await?)) }
        });
        serve(listener, router)
            .with_graceful_shutdown(ended)
            .shutdown_timeout(args.drain)
            .await?;
    } else {
        say(format_args!("open http://{addr}/"));
        serve(listener, router)
            .with_graceful_shutdown(ended)
            .shutdown_timeout(args.drain)
            .await?;
    }
    measuring.abort();
    let waited = stopped_at.get().map_or(Duration::ZERO, Instant::elapsed);
    Ok(args.drain.saturating_sub(waited))
}

async fn page() -> impl IntoResponse {
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, Html(include_str!("page.html")))
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    name: String,
}

/// Opens a WebSocket.
async fn enter(
    State(lobby): State<Arc<Lobby>>,
    Query(entry): Query<Entry>,
    mut request: Request,
) -> Response {
    let Some(response) = accept(&request) else {
        return (StatusCode::BAD_REQUEST, "this is for WebSockets\n").into_response();
    };
    let http = format!("{:?}", request.version());
    // The stream exists only after the answer, so a task of its own waits for it.
    tourbillon::spawn(connection::serve(on(&mut request), lobby, entry.name, http));
    response
}
