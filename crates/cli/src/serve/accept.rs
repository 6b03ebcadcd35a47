//! The accept loop.

use std::sync::Arc;

use tourbillon::{net::TcpListener, task::yield_now};

use super::{Server, connection};
use crate::server::Trouble;

/// Number of connections to accept before yielding to other tasks of the worker.
const BATCH: u32 = 32;

/// Accepts connections until it is aborted. Spawns a task for each; any worker may steal it.
pub(super) async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut trouble = Trouble::default();
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
            Err(error) => {
                let open = server.connections.count();
                trouble.outlast(&error, open).await;
            }
        }
    }
}
