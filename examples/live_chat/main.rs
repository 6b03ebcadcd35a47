//! A chat in the browser, over WebSockets. See the README in this directory.

mod connection;
mod lobby;

use std::{
    collections::HashMap, error::Error, net::SocketAddr, process::ExitCode, sync::Arc,
    time::Duration,
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
use tourbillon::{Runtime, net::TcpListener};
use tourbillon_axum::{ListenerExt, SameOrigin, serve};
use tourbillon_examples::{
    arguments::arguments,
    handshake::accept,
    room,
    say::{self, say},
    server::Stop,
    tls,
};
use tourbillon_hyper::FuturesIo;

use self::lobby::{Lobby, Rules};

/// The page's own script and style are in the page. It loads nothing else, and the browser refuses
/// to make HTML from text.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// How long the end of the server waits until all clients know: at most twice.
const DRAIN: Duration = Duration::from_secs(5);

/// Serve a page on which people chat, over WebSockets.
#[derive(Parser)]
struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Serve over TLS, with a new certificate for `localhost` that no browser knows. Browsers then
    /// use HTTP/2.
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    rules: Rules,
}

fn main() -> ExitCode {
    say::end("live_chat", start(&arguments()))
}

fn start(args: &Args) -> Result<(), Box<dyn Error>> {
    if args.rules.heartbeat >= args.rules.idle {
        return Err("--heartbeat must be shorter than --idle, or all clients are idle".into());
    }
    room::room_for(Some(args.rules.max_clients), 1)?;
    let runtime = Runtime::new()?;
    runtime.block_on(run(args))?;
    // WebSockets of HTTP/1 have left the HTTP server, which does not wait for their tasks.
    runtime.shutdown_graceful(DRAIN);
    Ok(())
}

/// Serves until a signal comes and the requests have ended.
async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut stop = Stop::new()?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let addr = listener.local_addr()?;
    let lobby = Arc::new(Lobby::new(args.rules));
    let router = Router::new()
        .route("/", get(page))
        .route("/ws", any(enter))
        // Browsers let a page of any site open a WebSocket.
        .layer(SameOrigin::new())
        .with_state(lobby.clone());
    let ended = async move {
        // An error means that the runtime shuts down, so the server must end, too.
        let _ = stop.recv().await;
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
            .shutdown_timeout(DRAIN)
            .await?;
    } else {
        say(format_args!("open http://{addr}/"));
        serve(listener, router)
            .with_graceful_shutdown(ended)
            .shutdown_timeout(DRAIN)
            .await?;
    }
    Ok(())
}

async fn page() -> impl IntoResponse {
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, Html(include_str!("page.html")))
}

/// Opens a WebSocket for the member whose name is in the query.
async fn enter(
    State(lobby): State<Arc<Lobby>>,
    Query(mut query): Query<HashMap<String, String>>,
    mut request: Request,
) -> Response {
    let Some(response) = accept(&request) else {
        return (StatusCode::BAD_REQUEST, "this is for WebSockets\n").into_response();
    };
    let http = format!("{:?}", request.version());
    // The stream exists only after the answer, so a task of its own waits for it.
    let name = query.remove("name").unwrap_or_default();
    tourbillon::spawn(connection::serve(on(&mut request), lobby, name, http));
    response
}
