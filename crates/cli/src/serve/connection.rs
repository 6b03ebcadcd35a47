//! One connection.
//!
//! One idle timer serves the connection for its whole life. The end of each request moves its
//! deadline, with one atomic operation. While a request is being answered, the timer is not polled.
//! Received bytes do not move the deadline. So a client that sends half a request, or sends very
//! slowly, counts as idle.

use std::{
    convert::Infallible,
    error::Error,
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
};

use http_body_util::Full;
use hyper::{
    Response,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use tourbillon::{
    net::TcpStream,
    time::{Instant, sleep},
};
use tourbillon_hyper::{TourbillonIo, TourbillonTimer, server::ConnectionGuard};

use super::Server;

/// Maximum length of a request's head, in bytes. It limits the memory that a slow client can hold.
const HEAD: usize = 16 * 1024;

/// Request counts of one connection. Only the connection's task accesses them; it can move between
/// threads.
#[derive(Default)]
struct Requests {
    /// Requests whose heads were read.
    begun: AtomicU64,
    /// Requests that are over: answered, or dropped because the client went away.
    over: AtomicU64,
}

/// A request that is being answered. Dropping it counts the request as over.
struct Answering(Arc<Requests>);

impl Answering {
    fn begin(requests: &Arc<Requests>) -> Self {
        requests.begun.fetch_add(1, Relaxed);
        Self(requests.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Relaxed);
    }
}

/// Why a connection ended.
enum End {
    /// The client closed it, in order or by a reset.
    ClosedByClient,
    /// The server closed it at its shutdown.
    ClosedByServer,
    /// An I/O error, or bytes that are not HTTP.
    Failed,
    /// No request came within the idle timeout.
    Idle,
}

/// Serves a connection until it ends.
pub(super) async fn serve(stream: TcpStream, guard: ConnectionGuard, server: Arc<Server>) {
    // Each reply is one write, so waiting for more data gains nothing.
    let _ = stream.set_nodelay(true);
    let requests = Arc::new(Requests::default());
    let service = service_fn(|_request| answer(Answering::begin(&requests), server.clone()));
    let connection = http1::Builder::new()
        .timer(TourbillonTimer::new())
        // The idle timer below also covers reading the head.
        .header_read_timeout(None)
        .max_buf_size(HEAD)
        .half_close(server.half_close)
        .serve_connection(TourbillonIo::new(stream), service);
    let end = drive(connection, &guard, &requests, &server).await;
    match end {
        End::ClosedByClient => server.stats.closed_by_client.add(1),
        End::ClosedByServer => server.stats.closed_by_server.add(1),
        End::Failed => server.stats.failed.add(1),
        End::Idle => server.stats.idle.add(1),
    }
}

/// Polls the connection until it ends, its idle timer fires, or the server closes and no answer is
/// pending.
async fn drive<S>(
    connection: http1::Connection<TourbillonIo<TcpStream>, S>,
    guard: &ConnectionGuard,
    requests: &Requests,
    server: &Server,
) -> End
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = Full<Bytes>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = pin!(connection);
    let mut idle = pin!(sleep(server.idle));
    let mut seen_over = 0;
    let mut closing = false;
    poll_fn(|cx| {
        loop {
            // Drive hyper first: it may start or finish a request.
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(match result {
                    Ok(()) if closing => End::ClosedByServer,
                    Ok(()) => End::ClosedByClient,
                    Err(error) if is_closed_by_client(&error) => End::ClosedByClient,
                    Err(_) => End::Failed,
                });
            }
            let (begun, over) = (requests.begun.load(Relaxed), requests.over.load(Relaxed));
            // The server closes. Without a request there is nothing to wait for.
            if !closing && guard.is_closing(cx) {
                closing = true;
                if begun == 0 {
                    return Poll::Ready(End::ClosedByServer);
                }
                // hyper closes after the pending answer, or at once if there is none.
                connection.as_mut().graceful_shutdown();
                continue;
            }
            // While a request is being answered, the connection is not idle.
            if begun > over {
                return Poll::Pending;
            }
            if over > seen_over {
                seen_over = over;
                // A deadline beyond the clock's range cannot be set. The first one was then out of
                // range too, so the timer never fires.
                if let Some(deadline) = Instant::now().checked_add(server.idle) {
                    idle.as_mut().reset(deadline);
                }
            }
            return idle.as_mut().poll(cx).map(|()| End::Idle);
        }
    })
    .await
}

/// Returns whether an error means that the client closed the connection, possibly amid a request.
fn is_closed_by_client(error: &hyper::Error) -> bool {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return true;
    }
    // An I/O error is hyper's source.
    let source = error.source();
    let io_error = source.and_then(|source| source.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::NotConnected
                | io::ErrorKind::UnexpectedEof
        )
    })
}

/// Answers a request after the delay. Only a timer waits, no thread.
async fn answer(
    _answering: Answering,
    server: Arc<Server>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let unanswered = server.stats.unanswered();
    sleep(server.delay).await;
    unanswered.answered();
    let mut response = Response::new(Full::new(server.body.clone()));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}
