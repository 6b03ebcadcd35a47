//! A connection and its time limits.
//!
//! One timer serves a connection for its whole life, and requests do not touch it. When it fires
//! and requests were answered meanwhile, it is set to the time at which the connection would be
//! idle for too long.
//!
//! Incoming bytes do not count as activity: a client that sends half a request, or sends it very
//! slowly, is idle. Response bytes count if there are enough of them: see `pace`. Request bodies
//! and HTTP/2 streams have their own timers while they wait for the client: see `request_body` and
//! `streams`.

use std::{
    error::Error,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{extract::Request, response::Response};
use tourbillon::time::Instant;
use tourbillon_hyper::{TolerantSleep, server::ConnectionGuard};
use tower_service::Service;

use crate::{
    ack_counter::AckCounter,
    io::Watched,
    listener::{IncomingStream, Listener},
    requests::{Counted, Requests},
    server::{Http, Server},
};

/// The minimum time between two checks of a busy connection.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// The time a connection gets to finish after it was told to take no more requests.
const GOODBYE: Duration = Duration::from_secs(1);
/// The time an HTTP/2 client may continue to send requests after that, counted from its first
/// further request. It covers the delivery of the goodbye over a slow network.
const GOODBYE_IGNORED_MAX: Duration = Duration::from_secs(5);

/// Serves a connection until it ends.
pub(crate) async fn serve<L, M, S>(
    handshake: L::Handshake,
    remote_addr: L::Addr,
    acks: AckCounter,
    mut make_service: M,
    guard: ConnectionGuard,
    server: Arc<Server>,
) where
    L: Listener,
    M: for<'a> Service<
            IncomingStream<'a, L>,
            Response = S,
            Error = std::convert::Infallible,
            Future: Send,
        > + Send,
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    let requests = Arc::new(Requests::new(&server.options));
    let mut end = End::new(&guard, &server, acks, requests.clone());
    // First the handshake and the service, within the time limit of `end`.
    let prepared = async {
        let io = handshake.await?;
        let service = {
            let Ok(()) = poll_fn(|cx| {
                <M as Service<IncomingStream<'_, L>>>::poll_ready(&mut make_service, cx)
            })
            .await;
            let Ok(service) = make_service
                .call(IncomingStream {
                    io: &io,
                    remote_addr,
                })
                .await;
            service
        };
        io::Result::Ok((io, service))
    };
    // A client that stalls in the handshake has no more time than for a request head.
    let mut prepared = pin!(prepared);
    let prepared = poll_fn(|cx| match prepared.as_mut().poll(cx) {
        Poll::Ready(prepared) => Poll::Ready(prepared.ok()),
        Poll::Pending => end.poll(cx).map(|_| None),
    });
    let Some((io, service)) = prepared.await else {
        return;
    };

    // Then the requests, counted so that `end` knows when the connection is idle.
    let service = Counted {
        service,
        requests: requests.clone(),
    };
    let io = Watched { io, requests };
    match &server.http {
        Http::Any(http) => {
            let connection = http.serve_connection_with_upgrades(io, service);
            run(connection, |it| it.graceful_shutdown(), &mut end).await;
        }
        Http::One(http) => {
            let connection = http.serve_connection(io, service).with_upgrades();
            run(connection, |it| it.graceful_shutdown(), &mut end).await;
        }
    }
}

/// Runs a connection until it ends. `goodbye` tells it to take no more requests.
async fn run<C: Future>(connection: C, goodbye: impl Fn(Pin<&mut C>), end: &mut End<'_>) {
    let mut connection = pin!(connection);
    poll_fn(|cx| {
        // The server closes, and a request is in progress: its answer is to say that it is the
        // last.
        if end.is_last(cx) {
            goodbye(connection.as_mut());
        }
        loop {
            // Ignore the result: the client went away, or did not speak HTTP.
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match ready!(end.poll(cx)) {
                Last::Nothing => return Poll::Ready(()),
                Last::Answers => goodbye(connection.as_mut()),
            }
        }
    })
    .await;
}

/// The remaining work of a connection that has to end.
enum Last {
    /// Answer the requests in progress.
    Answers,
    Nothing,
}

/// Decides when a connection has to end.
struct End<'a> {
    guard: &'a ConnectionGuard,
    server: &'a Server,
    acks: AckCounter,
    requests: Arc<Requests>,
    /// `None` without a limit.
    timer: Option<TolerantSleep>,
    /// Whether the timer applies to the time after the first request.
    kept: bool,
    /// Whether the connection was told to take no more requests, because the server closes or
    /// because it is idle.
    closing_announced: bool,
    idle_announced: bool,
    /// For an HTTP/2 client that ignores the goodbye: the number of requests at the last check.
    last: Option<usize>,
    /// The time of the first check that found a further request.
    first_ignored_at: Option<Instant>,
    /// The last seen start of a period in which the socket accepted too little.
    stuck: Option<Instant>,
    /// The last time at which the client had acknowledged enough while the socket accepted too
    /// little.
    took: Option<Instant>,
    /// The total number of acknowledged bytes at the later of these two times.
    taken: u64,
}

impl<'a> End<'a> {
    fn new(
        guard: &'a ConnectionGuard,
        server: &'a Server,
        acks: AckCounter,
        requests: Arc<Requests>,
    ) -> Self {
        Self {
            guard,
            server,
            acks,
            requests,
            timer: (server.options.header_read_timeout).map(|limit| server.options.limit(limit)),
            kept: false,
            closing_announced: false,
            idle_announced: false,
            last: None,
            first_ignored_at: None,
            stuck: None,
            took: None,
            taken: 0,
        }
    }

    /// Records that the connection was told that the server closes.
    fn announce_closing(&mut self) {
        self.closing_announced = true;
        if self.kept {
            // The idle time ends here. The client only gets the time of a goodbye.
            self.timer = Some(self.server.options.limit(GOODBYE));
        }
    }

    /// Returns whether the server closes while a request is being answered. The connection must
    /// learn this before it continues, so that its response announces that it is the last one.
    fn is_last(&mut self, cx: &Context<'_>) -> bool {
        let is_last =
            !self.closing_announced && self.requests.answers() && self.guard.is_closing(cx);
        if is_last {
            self.announce_closing();
        }
        is_last
    }

    /// Returns whether the connection was told to take no more requests.
    fn is_announced(&self) -> bool {
        self.closing_announced || self.idle_announced
    }

    /// Returns whether the client continues to send requests although the server closes. An HTTP/2
    /// client that ignores the goodbye could do so forever. Requests that crossed the goodbye are
    /// no sign of this, because they arrive at about the same time.
    fn is_ignored(&mut self, now: Instant) -> bool {
        if !self.closing_announced {
            return false;
        }
        let count = self.requests.count();
        // A client that sends requests in spite of the goodbye would keep the connection open for
        // ever.
        let sends_more = self.last.replace(count).is_some_and(|last| last != count);
        sends_more
            && now.duration_since(*self.first_ignored_at.get_or_insert(now)) >= GOODBYE_IGNORED_MAX
    }

    /// Returns the time at which the connection will have been idle for too long, from the current
    /// state.
    fn idle_deadline(&self, is_stuck: bool) -> Option<Instant> {
        let options = &self.server.options;
        let kept = match self.is_announced() {
            // Requests that crossed the goodbye are answered like others.
            true => GOODBYE,
            false => options.kept()?,
        };
        // hyper may have finished a response that the client is still taking.
        let limit = match is_stuck {
            true => kept.max(options.write_timeout?),
            false => kept,
        };
        let since = self.requests.idle_since()?;
        self.took
            .map_or(since, |took| took.max(since))
            .checked_add(limit)
    }

    /// Returns the time at which both socket and client will have taken too little for too long.
    /// `None` if everything was written.
    fn stuck_deadline(&self) -> Option<Instant> {
        let since = self.requests.stuck_since()?;
        let since = self.took.map_or(since, |took| took.max(since));
        since.checked_add(self.server.options.write_timeout?)
    }

    /// Records the acknowledged bytes when the socket begins to accept too little.
    fn note_taken(&mut self) {
        let stuck = self.requests.stuck_since();
        // A new wait for the client has begun. What it had taken before does not count.
        if stuck.is_some() && stuck != self.stuck {
            self.taken = self.acks.bytes().unwrap_or(0);
        }
        self.stuck = stuck;
    }

    /// Returns whether the client acknowledges enough although the socket accepts too little. The
    /// system makes room in the socket only when a large part of its buffer is free.
    ///
    /// Returns `false` while the socket accepts enough. Then only the bytes given to the socket
    /// count, so that answers to pings do not keep a connection open.
    fn has_taken(&mut self, now: Instant) -> bool {
        if self.stuck_deadline().is_none_or(|deadline| now < deadline) {
            return false;
        }
        let Some(taken) = self.acks.bytes() else {
            return false;
        };
        let is_enough = taken.saturating_sub(self.taken) >= self.requests.write.least;
        if is_enough {
            (self.took, self.taken) = (Some(now), taken);
        }
        is_enough
    }

    /// Returns the interval of checks: the shortest limit, or `None` without one.
    fn check_interval(&self) -> Option<Duration> {
        let options = &self.server.options;
        match self.is_announced() {
            true => Some(GOODBYE),
            false => [options.checked(), options.write_timeout]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Returns the time of the next limit, but at the latest that of the next check: the connection
    /// may be in another state by then.
    fn deadline(&self, now: Instant) -> Instant {
        let again = self
            .check_interval()
            .and_then(|check_interval| now.checked_add(check_interval.max(MIN_CHECK_INTERVAL)));
        // A time beyond the range of the clock means that the timer was never armed.
        let again = again.unwrap_or(now);
        let idle = self.idle_deadline(self.requests.stuck_since().is_some());
        [idle, self.stuck_deadline()]
            .into_iter()
            .flatten()
            .fold(again, Instant::min)
    }

    /// Returns ready when the connection has to end. After `Answers` it may be polled again.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Last> {
        // This must come first: it registers the waker, so that a close after it wakes this task.
        let closing = self.guard.is_closing(cx);
        if self.server.is_cut() {
            return Poll::Ready(Last::Nothing);
        }
        self.note_taken();
        if closing && !self.closing_announced {
            self.announce_closing();
            return Poll::Ready(if self.requests.count() > 0 {
                Last::Answers
            } else {
                Last::Nothing
            });
        }
        // After the first request, the limit of the head no longer applies.
        if !self.kept && self.requests.count() > 0 {
            // From here on the timer looks for a client that is idle or slow.
            self.kept = true;
            let options = &self.server.options;
            self.timer = self.check_interval().map(|limit| options.limit(limit));
        }
        loop {
            let Some(timer) = &mut self.timer else {
                return Poll::Pending;
            };
            ready!(Pin::new(&mut *timer).poll(cx));
            // Before the first request, the limit is final. If the timer is complete but not
            // elapsed, the runtime has shut down.
            if !self.kept || !timer.is_elapsed() {
                return Poll::Ready(Last::Nothing);
            }
            let now = Instant::now();
            if self.is_ignored(now) {
                return Poll::Ready(Last::Nothing);
            }
            let mut deadline = self.deadline(now);
            // Ask the system for acknowledged bytes only if the connection would end otherwise.
            if deadline <= now && self.has_taken(now) {
                deadline = self.deadline(now);
            }
            if deadline > now {
                // Always present here: the timer has just fired.
                if let Some(timer) = &mut self.timer {
                    timer.set_deadline(deadline);
                }
            } else if self.requests.are_http2() && !self.is_announced() {
                // An HTTP/2 client may have sent a request at this moment. Say goodbye, and wait
                // for a second.
                self.idle_announced = true;
                self.timer = Some(self.server.options.limit(GOODBYE));
                return Poll::Ready(Last::Answers);
            } else {
                return Poll::Ready(Last::Nothing);
            }
        }
    }
}
