//! The accept loop.

use std::{io, sync::Arc};

use tourbillon::{
    net::TcpListener,
    task::yield_now,
    time::{Instant, sleep},
};
use tourbillon_hyper::server::{ACCEPT_PAUSE, ACCEPT_REPORT_INTERVAL, concerns_one_connection};

use super::{Server, connection};
use crate::complain;

/// Number of connections to accept before yielding to other tasks of the worker.
const BATCH: u32 = 32;

/// Accepts connections until it is aborted. Spawns a task for each; any worker may steal it.
pub(super) async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut complained: Option<Instant> = None;
    let mut accepted = 0_u32;
    loop {
        // At the limit, further connections wait in the listener's queue.
        server.connections.at_most(server.max_connections - 1).await;
        match listener.accept().await {
            Ok((stream, _peer)) => {
                server.stats.connections.add(1);
                let guard = server.connections.add();
                tourbillon::spawn(connection::serve(stream, guard, server.clone()));
                accepted = accepted.wrapping_add(1);
                // A burst of clients must not keep this worker from its other tasks.
                if accepted.is_multiple_of(BATCH) {
                    yield_now().await;
                }
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                // Running out of descriptors can last: do not print the error each time.
                if complained.is_none_or(|when| when.elapsed() >= ACCEPT_REPORT_INTERVAL) {
                    complained = Some(Instant::now());
                    cannot_accept(&error, server.connections.count());
                }
                // Meanwhile the connection waits in the listener's queue.
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn cannot_accept(error: &io::Error, open: usize) {
    let hint = match error.raw_os_error() {
        Some(libc::EMFILE) => "; raise the process's limit, `ulimit -n`",
        Some(libc::ENFILE) => "; raise the system's limit, `fs.file-max`",
        _ => "",
    };
    complain(format_args!(
        "cannot accept with {open} open connections, trying again: {error}{hint}"
    ));
}
