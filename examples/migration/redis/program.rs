//! The program: a server, or a client of one.
//!
//! - `ADDRESS` serves there until Ctrl-C or SIGTERM.
//! - `ADDRESS SUBSCRIBE CHANNEL…` prints the messages of channels until the server ends.
//! - `ADDRESS COMMAND ARGUMENT…` sends a command, and prints the reply.

use std::{env, error::Error, io};

use bytes::Bytes;
use tokio::select;

use crate::{
    client::{BlockingClient, Client, Event},
    rt::{
        net::TcpListener,
        runtime::Runtime,
        signal::{SignalKind, signal},
        time::Duration,
    },
    say::say,
    server::{Limits, serve},
};

const LIMITS: Limits = Limits {
    clients: 10_000,
    drain: Duration::from_secs(10),
};

/// Runs the program with the arguments of the process.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:6379".to_owned());
    let words: Vec<Bytes> = arguments.map(Bytes::from).collect();
    match words.split_first() {
        None => Runtime::new()?.block_on(listen(&address))?,
        Some((command, channels)) if command.eq_ignore_ascii_case(b"subscribe") => {
            Runtime::new()?.block_on(subscribe(&address, channels))?;
        }
        Some(_) => say(BlockingClient::connect(&address)?.ask(&words)?),
    }
    Ok(())
}

async fn listen(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    // Before the line that invites clients: from here on no signal ends the process by itself.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    say(format_args!("listening on {}", listener.local_addr()?));
    let shutdown = async {
        select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    serve(listener, LIMITS, shutdown).await
}

async fn subscribe(address: &str, channels: &[Bytes]) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(address).await?;
    let mut subscriber = client.subscribe(channels).await?;
    while let Some(event) = subscriber.recv().await? {
        match event {
            Event::Subscribed(channel) => {
                say(format_args!("subscribed to {}", channel.escape_ascii()));
            }
            Event::Message { channel, message } => {
                let (channel, message) = (channel.escape_ascii(), message.escape_ascii());
                say(format_args!("{channel}: {message}"));
            }
        }
    }
    Ok(())
}
