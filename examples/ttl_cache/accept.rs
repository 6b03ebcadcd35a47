//! Accepting connections.

use std::{io, sync::Arc, time::Duration};

use tourbillon::{
    net::TcpListener,
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{Server, connection};

/// How long to wait when the system gives no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to be silent after saying so.
const SILENCE: Duration = Duration::from_secs(1);
/// How many connections are accepted before other jobs of the worker get their turn.
const BATCH: u64 = 32;

/// Accepts connections, each of which becomes a task that any worker may steal, until it is dropped.
pub async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut complained: Option<Instant> = None;
    let mut id = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => {
                id += 1;
                server.stats.connections.add(1);
                match server.enter() {
                    Some(client) => drop(tourbillon::spawn(connection::serve(stream, id, client))),
                    None => {
                        server.stats.rejected.add(1);
                        // If there is no room even for that, it is closed without a word.
                        let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                    }
                }
                if id % BATCH == 0 {
                    yield_now().await;
                }
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                if complained.is_none_or(|when| when.elapsed() >= SILENCE) {
                    complained = Some(Instant::now());
                    complain(&error, server.stats.clients.get());
                }
                // The connection waits in the listener's queue meanwhile.
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whether the error is that of a client who is gone, and the next one may be served.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn complain(error: &io::Error, open: u64) {
    let hint = match error.raw_os_error() {
        Some(libc::EMFILE) => "; raise the process's limit, `ulimit -n`",
        Some(libc::ENFILE) => "; raise the system's limit, `fs.file-max`",
        _ => "",
    };
    eprintln!("cannot accept with {open} connections open, trying again: {error}{hint}");
}
