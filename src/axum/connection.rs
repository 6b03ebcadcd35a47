//! One connection.
//!
//! One timer serves it for as long as it lives, and no request touches it. When it comes up, and
//! requests were answered meanwhile, it is set to when the connection will have been idle for long
//! enough. Bytes that come in do not count: a client that sends half a request, or sends one very
//! slowly, is idle, too. Bytes of responses count, if there are enough of them: see `pace`. Bodies
//! of requests and streams of HTTP/2 have timers of their own while they wait for the client: see
//! `request_body` and `streams`.

use std::{
    error::Error,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use ::axum::{extract::Request, response::Response};
use tower_service::Service;

use super::{
    gate::Pass,
    io::Watched,
    listener::{Client, IncomingStream, Listener},
    requests::{Counted, Requests},
    serve::{Http, Server},
};
use crate::time::{Instant, Sleep, sleep};

/// How soon a connection is looked at again that was busy when its timer came up, at the soonest.
const LOOK: Duration = Duration::from_millis(1);
/// How long one that was told to take no more requests may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// For how long a client of HTTP/2 may ask on after that, from its first further request: until it
/// has the goodbye, over a slow network, too.
const ASKING_ON: Duration = Duration::from_secs(5);

/// Serves a connection to its end.
pub(super) async fn serve<L, M, S>(
    handshake: L::Handshake,
    remote_addr: L::Addr,
    client: Client,
    mut make_service: M,
    pass: Pass,
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
    let mut end = End::new(&pass, &server, client, requests.clone());
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
    let mut prepared = pin!(prepared);
    let prepared = poll_fn(|cx| match prepared.as_mut().poll(cx) {
        Poll::Ready(prepared) => Poll::Ready(prepared.ok()),
        Poll::Pending => end.poll(cx).map(|_| None),
    });
    let Some((io, service)) = prepared.await else {
        return;
    };

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

/// Runs a connection to its end; `goodbye` tells it to take no more requests.
async fn run<C: Future>(connection: C, goodbye: impl Fn(Pin<&mut C>), end: &mut End<'_>) {
    let mut connection = pin!(connection);
    poll_fn(|cx| {
        if end.is_last(cx) {
            goodbye(connection.as_mut());
        }
        loop {
            // How it ended is nobody's business: the client went away, or spoke no HTTP.
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

/// What a connection may yet do.
enum Last {
    /// Answer the requests that it has.
    Answers,
    Nothing,
}

/// When a connection has to end.
struct End<'a> {
    pass: &'a Pass,
    server: &'a Server,
    client: Client,
    requests: Arc<Requests>,
    /// None where there is no limit.
    timer: Option<Sleep>,
    /// Whether that is for what follows the first request.
    kept: bool,
    /// Whether the connection was told to take no more requests, for one reason and for the other.
    told_closing: bool,
    told_idle: bool,
    /// How many requests there were at the last look at a client of HTTP/2 that should have
    /// stopped, as the server closes.
    last: Option<usize>,
    /// When a look first found more.
    asked_on: Option<Instant>,
    /// Since when the socket took too little, as last seen.
    stuck: Option<Instant>,
    /// When the client was last found to have taken enough although the socket did not.
    took: Option<Instant>,
    /// How many bytes the client had taken at the later of the two, from the beginning.
    taken: u64,
}

impl<'a> End<'a> {
    fn new(pass: &'a Pass, server: &'a Server, client: Client, requests: Arc<Requests>) -> Self {
        Self {
            pass,
            server,
            client,
            requests,
            timer: server.options.header_read_timeout.map(sleep),
            kept: false,
            told_closing: false,
            told_idle: false,
            last: None,
            asked_on: None,
            stuck: None,
            took: None,
            taken: 0,
        }
    }

    /// The connection is told that the server closes.
    fn tell_closing(&mut self) {
        self.told_closing = true;
        if self.kept {
            // From here on, the client has no time to be idle.
            self.timer = Some(sleep(GOODBYE));
        }
    }

    /// Returns whether the server closes while something is answered: told before it goes on, the
    /// connection says in its response that it is the last one.
    fn is_last(&mut self, cx: &Context<'_>) -> bool {
        let is_last = !self.told_closing && self.requests.answers() && self.pass.is_closing(cx);
        if is_last {
            self.tell_closing();
        }
        is_last
    }

    /// Returns whether the connection was told to take no more requests.
    fn is_told(&self) -> bool {
        self.told_closing || self.told_idle
    }

    /// Returns whether the server closes, and the client asks on nevertheless. A client of HTTP/2
    /// may do so for ever if it does not acknowledge the goodbye. Requests that were on their way
    /// when it came are no sign of that: they come at about one time.
    fn is_ignored(&mut self, now: Instant) -> bool {
        if !self.told_closing {
            return false;
        }
        let count = self.requests.count();
        let asks_on = self.last.replace(count).is_some_and(|last| last != count);
        asks_on && now.duration_since(*self.asked_on.get_or_insert(now)) >= ASKING_ON
    }

    /// When nothing will have been done for a request for too long, as it is now.
    fn idle_deadline(&self, is_stuck: bool) -> Option<Instant> {
        let options = &self.server.options;
        let kept = match self.is_told() {
            // Requests that crossed the goodbye are answered as others are.
            true => GOODBYE,
            false => options.keep_alive_timeout?,
        };
        // hyper may be done with a response of which the client takes the rest.
        let limit = match is_stuck {
            true => kept.max(options.write_timeout?),
            false => kept,
        };
        let since = self.requests.idle_since()?;
        self.took
            .map_or(since, |took| took.max(since))
            .checked_add(limit)
    }

    /// When the socket will have taken too little for too long, and the client, too, as far as was
    /// seen. None if all was written.
    fn stuck_deadline(&self) -> Option<Instant> {
        let since = self.requests.stuck_since()?;
        let since = self.took.map_or(since, |took| took.max(since));
        since.checked_add(self.server.options.write_timeout?)
    }

    /// Notes how much the client has taken if the socket takes too little from now on.
    fn note_taken(&mut self) {
        let stuck = self.requests.stuck_since();
        if stuck.is_some() && stuck != self.stuck {
            self.taken = self.client.taken().unwrap_or(0);
        }
        self.stuck = stuck;
    }

    /// Returns whether the client takes enough of what the socket has, although the socket takes
    /// too little of what there is: the system lets it take more only when a large part of its
    /// buffer is free.
    ///
    /// While the socket takes enough, this is false: what counts then is what it is given, so that
    /// answers to pings keep no connection.
    fn has_taken(&mut self, now: Instant) -> bool {
        if self.stuck_deadline().is_none_or(|deadline| now < deadline) {
            return false;
        }
        let Some(taken) = self.client.taken() else {
            return false;
        };
        let is_enough = taken.saturating_sub(self.taken) >= self.requests.write.least;
        if is_enough {
            (self.took, self.taken) = (Some(now), taken);
        }
        is_enough
    }

    /// Returns how often to look, if at all: as often as the shortest limit comes up.
    fn look(&self) -> Option<Duration> {
        let options = &self.server.options;
        match self.is_told() {
            true => Some(GOODBYE),
            false => [options.keep_alive_timeout, options.write_timeout]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// When nothing will have been done, or taken, for too long, or when to look again, whichever
    /// is first: what it waits for may have another limit by then.
    fn deadline(&self, now: Instant) -> Instant {
        let again = self.look().and_then(|look| now.checked_add(look.max(LOOK)));
        // Past what the clock knows it has never been armed.
        let again = again.unwrap_or(now);
        let idle = self.idle_deadline(self.requests.stuck_since().is_some());
        [idle, self.stuck_deadline()]
            .into_iter()
            .flatten()
            .fold(again, Instant::min)
    }

    /// Ready when the connection has to end, and says how. After `Answers` it may be asked on.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Last> {
        // In this order: the first makes us known to who closes.
        let closing = self.pass.is_closing(cx);
        if self.server.is_cut() {
            return Poll::Ready(Last::Nothing);
        }
        self.note_taken();
        if closing && !self.told_closing {
            self.tell_closing();
            return Poll::Ready(if self.requests.count() > 0 {
                Last::Answers
            } else {
                Last::Nothing
            });
        }
        if !self.kept && self.requests.count() > 0 {
            self.kept = true;
            self.timer = self.look().map(sleep);
        }
        loop {
            let Some(timer) = &mut self.timer else {
                return Poll::Pending;
            };
            ready!(Pin::new(&mut *timer).poll(cx));
            // Not elapsed and over: the runtime is.
            if !self.kept || !timer.is_elapsed() {
                return Poll::Ready(Last::Nothing);
            }
            let now = Instant::now();
            if self.is_ignored(now) {
                return Poll::Ready(Last::Nothing);
            }
            let mut deadline = self.deadline(now);
            if deadline <= now && self.has_taken(now) {
                deadline = self.deadline(now);
            }
            if deadline > now {
                // It is there, as it has come up.
                if let Some(timer) = &mut self.timer {
                    timer.set_deadline(deadline);
                }
            } else if self.requests.are_http2() && !self.is_told() {
                self.told_idle = true;
                self.timer = Some(sleep(GOODBYE));
                return Poll::Ready(Last::Answers);
            } else {
                return Poll::Ready(Last::Nothing);
            }
        }
    }
}
