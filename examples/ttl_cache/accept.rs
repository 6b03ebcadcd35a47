//! The accept loop.

use std::sync::Arc;

use tourbillon::{net::TcpListener, task::yield_now};

use crate::{Server, clients::Client, connection, trouble::Trouble};

/// Number of connections to accept before yielding to other tasks of the worker.
const BATCH: u64 = 32;

/// Accepts connections until it is dropped. Spawns a task for each; any worker may steal it.
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
                        // If the socket's buffer is full, the connection is closed without a
                        // message.
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
