//! Accepting connections.

use std::sync::Arc;

use tourbillon::{net::TcpListener, task::yield_now};

use crate::{Server, clients::Client, connection, trouble::Trouble};

/// How many connections are accepted before other jobs of the worker get their turn.
const BATCH: u64 = 32;

/// Accepts connections, each of which becomes a task that any worker may steal, until it is
/// dropped.
pub async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut trouble = Trouble::default();
    let mut id = 0;
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => {
                id += 1;
                server.stats.connections.add(1);
                match Client::enter(&server, &stream, addr, id) {
                    Some(client) => drop(tourbillon::spawn(connection::serve(stream, client))),
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
            Err(error) => trouble.outlast(&error, server.stats.clients.get()).await,
        }
    }
}
