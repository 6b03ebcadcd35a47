//! The chat server as a program: it listens at the given address, and ends on Ctrl-C or SIGTERM.

mod chat;
use std::env;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tourbillon_examples::say;

#[tokio::main]
async fn main() -> ExitCode {
    say::end("chat", run().await)
}

async fn run() -> std::io::Result<()> {
    let address = env::args().nth(1).unwrap_or("127.0.0.1:7000".to_owned());
    let listener = TcpListener::bind(address).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    say::say(format_args!("listening on {}", listener.local_addr()?));
    let limits = chat::Limits {
        heartbeat: Duration::from_secs(30),
        idle: Duration::from_secs(600),
        write: Duration::from_secs(10),
        drain: Duration::from_secs(5),
    };
    let shutdown = async {
        tokio::select! {
            _ = ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    chat::serve(listener, limits, say::Results::default(), shutdown).await
}
