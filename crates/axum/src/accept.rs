//! The accepting task of a listener.

use std::{convert::Infallible, error::Error, sync::Arc};

use axum::{extract::Request, response::Response};
use tourbillon::{
    task::yield_now,
    time::{Instant, sleep},
};
use tourbillon_hyper::server::{ACCEPT_PAUSE, ACCEPT_REPORT_INTERVAL, concerns_one_connection};
use tower_service::Service;

use crate::{
    accept_error::AcceptError,
    connection,
    listener::{IncomingStream, Listener},
    server::Server,
};

/// The number of connections that are accepted before the task yields to other jobs.
const BATCH: u32 = 32;

/// Accepts connections until it is aborted. Each connection becomes a task that any worker may
/// steal.
pub(crate) async fn accept<L, M, S>(mut listener: L, make_service: M, server: Arc<Server>)
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Response = S, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    let mut reported_at: Option<Instant> = None;
    let mut accepted = 0_u32;
    loop {
        // Without room, connections wait in the listener's queue.
        server.connections.at_most(server.max_connections - 1).await;
        match listener.accept_watched().await {
            Ok((handshake, peer, acks)) => {
                // Count the connection here, before its task runs: the next look at the limit must
                // see it.
                let (guard, make_service) = (server.connections.add(), make_service.clone());
                let server = server.clone();
                drop(tourbillon::spawn(connection::serve::<L, M, S>(
                    handshake,
                    peer,
                    acks,
                    make_service,
                    guard,
                    server,
                )));
                accepted = accepted.wrapping_add(1);
                // With a full queue this loop would never wait. Let the accepted connections run.
                if accepted % BATCH == 0 {
                    yield_now().await;
                }
            }
            // That connection is gone. The next one may be in order.
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                // For example, the process has no descriptors left. This may last, so report it
                // only now and then.
                if reported_at.is_none_or(|when| when.elapsed() >= ACCEPT_REPORT_INTERVAL) {
                    reported_at = Some(Instant::now());
                    server.report_accept_error(&AcceptError {
                        error,
                        open: server.connections.count(),
                    });
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
