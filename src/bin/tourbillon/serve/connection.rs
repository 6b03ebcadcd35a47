//! One connection.
//!
//! One timer serves it for as long as it lives. It is moved on at the end of each request, which is
//! one atomic operation; should it come up while a request is being answered, it is not asked. It is
//! not moved by bytes that come in, so that a client who sends half a request, or sends one very
//! slowly, is idle, too.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
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
    hyper::TourbillonTimer,
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{Server, gate::Pass};

/// How long a request's head may be, in bytes: what a client that never ends it can make the server
/// hold.
const HEAD: usize = 16 * 1024;

/// The requests of one connection. All is read and written by the connection's task, which moves
/// between threads as a whole.
#[derive(Default)]
struct Requests {
    /// Requests whose heads were read.
    begun: AtomicU64,
    /// Those that are over: answered, or given up because the client went away.
    over: AtomicU64,
}

/// A request that is being answered; over when it is dropped.
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
    /// By the client, or because the server closes.
    Closed,
    /// It broke, or the client sent what is no HTTP.
    Failed,
    /// There was no request for too long.
    Idle,
}

/// Serves a connection to its end.
pub(super) async fn serve(stream: TcpStream, pass: Pass, server: Arc<Server>) {
    // A reply is written in one go, and nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let requests = Arc::new(Requests::default());
    let service = service_fn(|_request| answer(Answering::begin(&requests), server.clone()));
    let connection = http1::Builder::new()
        .timer(TourbillonTimer::new())
        // The timer below covers it.
        .header_read_timeout(None)
        .max_buf_size(HEAD)
        .half_close(server.half_close)
        .serve_connection(stream, service);
    let end = drive(connection, &pass, &requests, &server).await;
    match end {
        End::Closed => server.stats.closed.add(1),
        End::Failed => server.stats.failed.add(1),
        End::Idle => server.stats.idle.add(1),
    }
}

/// Polls a connection until it ends, its idle timer comes up, or the server has closed and it has
/// nothing left to answer.
async fn drive<S>(
    connection: http1::Connection<TcpStream, S>,
    pass: &Pass,
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
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(result.map_or(End::Failed, |()| End::Closed));
            }
            let (begun, over) = (requests.begun.load(Relaxed), requests.over.load(Relaxed));
            if !closing && pass.is_closing(cx) {
                closing = true;
                if begun == 0 {
                    return Poll::Ready(End::Closed);
                }
                // After the answer, if one is due, otherwise now.
                connection.as_mut().graceful_shutdown();
                continue;
            }
            if begun > over {
                return Poll::Pending;
            }
            if over > seen_over {
                seen_over = over;
                // Beyond what the clock knows, it has never been armed, and never will be.
                if let Some(deadline) = Instant::now().checked_add(server.idle) {
                    idle.as_mut().reset(deadline);
                }
            }
            return idle.as_mut().poll(cx).map(|()| End::Idle);
        }
    })
    .await
}

/// The delayed reply. No thread waits for it, only a timer.
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
