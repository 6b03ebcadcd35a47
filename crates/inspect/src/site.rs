//! The routes and answers of the site.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::{
        HeaderMap, HeaderValue, Method, Response, StatusCode, Uri,
        header::{
            ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY,
            CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::{self, Next},
    routing::get,
};
use hyper::body::Bytes;

use tourbillon::{Handle, spawn};
use tourbillon_axum::guard::{Hosts, Refused, Source};

use crate::{
    download::{Downloads, NoFile},
    feed::Feed,
    late::Question,
    listener::Flow,
    negotiate,
    negotiate::TextFormat,
    outstanding::Outstanding,
    page::ASSETS,
    query,
    recent::Recent,
    sampler::Sampler,
    slowest::Slowest,
    snapshot::{Inspection, Snapshot},
    tasks::{Order, TaskList},
};

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// The headers of every answer. The page may load its own files and nothing else, no frame may
/// contain it, and no other page may read it.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
];

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct Site {
    /// The inspected runtime.
    pub(crate) handle: Handle,
    pub(crate) hosts: Hosts,
    pub(crate) feed: Feed,
    pub(crate) sampler: Sampler,
    pub(crate) slowest: Slowest,
    pub(crate) tasks: TaskList,
    pub(crate) downloads: Downloads,
    pub(crate) outstanding: Outstanding,
    pub(crate) inspection: Inspection,
    pub(crate) answers: Answers,
}

/// The cached answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    snapshot: Recent,
    prometheus: Recent,
    openmetrics: Recent,
    /// By [`Order`].
    tasks: [Recent; 3],
}

impl Site {
    /// Takes a snapshot of the runtime.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let samples = self.sampler.samples();
        let clients = self.feed.listeners();
        Snapshot::take(&self.handle, &self.inspection, &samples, clients)
    }

    /// Answers with a cached or newly created text. Answers 503 if a text must be created while
    /// clients have too much left to read.
    fn cached(
        &self,
        content_type: &'static str,
        recent: &Recent,
        text: impl FnOnce() -> String,
    ) -> Response<Body> {
        let outstanding = &self.outstanding;
        // One answer serves all clients that ask at about the same time.
        let text = recent.get(|| (!outstanding.is_full()).then(|| outstanding.hold(text())));
        match text {
            Some(text) => answer(StatusCode::OK, content_type, text),
            None => busy(NO_ROOM),
        }
    }
}

pub(crate) fn router(site: Arc<Site>) -> Router {
    let mut router = Router::new()
        .route("/snapshot.json", get(snapshot))
        .route("/events", get(events))
        .route("/late.json", get(late))
        .route("/tasks.json", get(tasks))
        .route("/trace.json", get(trace))
        .route("/metrics", get(metrics));
    #[cfg(feature = "profile")]
    {
        router = router.route("/profile", get(crate::profile::profile));
    }
    for asset in ASSETS {
        let file = || async { answer(StatusCode::OK, asset.content_type, asset.body()) };
        router = router.route(asset.path, get(file));
    }
    router
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "there is nothing here\n") })
        .layer(middleware::from_fn_with_state(site.clone(), guard))
        .with_state(site)
}

/// Runs allowed requests, and answers others with the reason of the refusal. Adds the headers to
/// every answer.
async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response<Body> {
    let mut response = match refusal(&site.hosts, &request) {
        None => next.run(request).await,
        Some(refusal) => refusal,
    };
    // Refusals have these headers, too.
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the answer to a request that is refused. The page only reads, so a request with another
/// method is not from it. The inspector speaks no TLS.
fn refusal(hosts: &Hosts, request: &Request) -> Option<Response<Body>> {
    let (method, uri) = (request.method(), request.uri());
    if !matches!(*method, Method::GET | Method::HEAD) {
        let why = "only GET and HEAD are answered\n";
        let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, why);
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return Some(response);
    }
    let refused = match hosts.check(request, &["http://"]) {
        // Other sites may link to the page, and to nothing that takes more work.
        Ok(Source::Link) if uri.path() != "/" => Refused::Origin,
        Ok(_) => return None,
        Err(refused) => refused,
    };
    Some(refuse(refused.status(), refused.why()))
}

fn refuse(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = plain(status, why);
    // Do not read a body that the request may have.
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

pub(crate) const NO_ROOM: &str = "other clients have not taken what they asked for\n";

/// Answers 503 and closes the connection, because there is no room for the request.
pub(crate) fn busy(why: &'static str) -> Response<Body> {
    refuse(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(crate) fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", text.into())
}

async fn snapshot(State(site): State<Arc<Site>>) -> Response<Body> {
    let recent = &site.answers.snapshot;
    site.cached("application/json", recent, || site.snapshot().to_json())
}

async fn late(State(site): State<Arc<Site>>, uri: Uri) -> Response<Body> {
    let question = match Question::parse(uri.query().unwrap_or("")) {
        Ok(question) => question,
        Err(why) => return plain(StatusCode::BAD_REQUEST, why),
    };
    if site.outstanding.is_full() {
        return busy(NO_ROOM);
    }
    let found = question.answer(&site.slowest, &site.handle, &site.inspection);
    let text = site.outstanding.hold(found.to_json());
    answer(StatusCode::OK, "application/json", text)
}

async fn tasks(State(site): State<Arc<Site>>, uri: Uri) -> Response<Body> {
    let order = match Order::parse(uri.query().unwrap_or("")) {
        Ok(order) => order,
        Err(why) => return plain(StatusCode::BAD_REQUEST, why),
    };
    if site.tasks.ask(&site.handle) {
        let site = site.clone();
        drop(spawn(async move { site.tasks.tend().await }));
    }
    let recent = &site.answers.tasks[order as usize];
    site.cached("application/json", recent, || {
        let answer = site.tasks.answer(order, &site.handle, &site.inspection);
        answer.to_json()
    })
}

async fn trace(State(site): State<Arc<Site>>, uri: Uri) -> Response<Body> {
    let asked = uri.query().unwrap_or("");
    let kept = match query::find(asked, "kept").map(|_| query::number(asked, "kept")) {
        Some(Err(why)) => return plain(StatusCode::BAD_REQUEST, why),
        Some(Ok(at)) => Some(at),
        None => None,
    };
    if site.outstanding.is_full() {
        return busy(NO_ROOM);
    }
    let file = match site.downloads.trace(&site.handle, kept).await {
        Ok(file) => file,
        Err(NoFile::Busy) => return busy("another client gets a trace: try again\n"),
        Err(NoFile::Gone) => return plain(StatusCode::NOT_FOUND, "this trace is not kept\n"),
    };
    let text = site.outstanding.hold(file.text);
    attachment("application/json", text, &file.name)
}

/// Answers with a file that a browser stores under this name.
pub(crate) fn attachment(
    content_type: &'static str,
    body: impl Into<Body>,
    name: &str,
) -> Response<Body> {
    let mut response = answer(StatusCode::OK, content_type, body);
    let named = format!("attachment; filename=\"{name}\"");
    if let Ok(named) = HeaderValue::try_from(named) {
        response.headers_mut().insert(CONTENT_DISPOSITION, named);
    }
    response
}

async fn metrics(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response<Body> {
    let answers = &site.answers;
    match negotiate::text_format(&headers) {
        TextFormat::Prometheus => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            let text = || tourbillon_exporters::prometheus(&site.handle.metrics());
            site.cached(content_type, &answers.prometheus, text)
        }
        TextFormat::OpenMetrics => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let text = || tourbillon_exporters::openmetrics(&site.handle.metrics());
            site.cached(content_type, &answers.openmetrics, text)
        }
    }
}

async fn events(
    State(site): State<Arc<Site>>,
    ConnectInfo(flow): ConnectInfo<Flow>,
) -> Response<Body> {
    match site.feed.listen(flow) {
        Some(listener) => answer(StatusCode::OK, "text/event-stream", Body::new(listener)),
        None => busy("too many clients listen already\n"),
    }
}
