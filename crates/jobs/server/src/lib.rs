//! The HTTP API of a queue of `tourbillon-jobs`, and a page that lists, searches, moves and cancels
//! jobs, and retries and discards the dead ones.
//!
//! | request | effect |
//! |---|---|
//! | `GET /` | the page |
//! | `POST /jobs` | schedules a job |
//! | `GET /jobs?search=&kind=&queue=&state=&after=&limit=` | lists jobs, `live` or `dead` ones |
//! | `GET /jobs/KEY` | returns a job |
//! | `PATCH /jobs/KEY` | moves a job; a dead one lives again |
//! | `DELETE /jobs/KEY` | cancels a job |
//! | `POST /dead/retry` | makes a part of the dead jobs due at once, with all their attempts |
//! | `POST /dead/discard` | removes a part of the dead jobs |
//! | `GET /counts` | counts the jobs |
//! | `GET /paused` | lists the queues that are paused |
//! | `PUT /paused/NAME` | pauses a queue, once the store has begun its last attempt |
//! | `DELETE /paused/NAME` | lets a queue go on |
//! | `GET /metrics` | the metrics for Prometheus, with [`metrics_router`] |
//!
//! The body of `POST` is `{"key": "k", "payload": "text", "in": "90s"}`. In place of `in`, a
//! duration, there may be `"at": "2027-01-31T12:00:00Z"`, or `"cron": "0 9 * * *"`, with `"zone":
//! "Europe/Paris"` unless it is UTC. `PATCH` takes the same times. With `"kind": "mail"`, only
//! handlers of this kind run the job, and with `"queue": "mails"` only nodes of this queue. Without
//! it, the queue is `default`. `"priority"` is from 0, the highest, to 9; the default is 4. With
//! `"replace": true`, the job takes the place of the job of its key, if there is one: see
//! [`Queue::schedule_or_replace`]. With `"unique_for": "1h"`, the key stays taken for this time
//! after the job is done; zero is none. If a key is taken, the answer is `{"created": false, "at":
//! "TIME"}`, where `at` is when its job is due or, if that is done, when the key is free. `DELETE`
//! frees such a key, too, and answers 404, as there is no job. With `"traceparent"`, the job
//! carries this W3C trace context: see [`NewJob::traceparent`](job::NewJob::traceparent). Without
//! the field, it carries that of the header `traceparent`, unless it has a `cron`, whose
//! occurrences are no part of this request. A wrong field is an error, and a wrong header counts as
//! none. An error is `{"error": "text"}`. A field or a parameter of another name is an error. A
//! list has the first bytes of each payload and error, and says with `"cut": true` that there are
//! more.
//!
//! The body of `POST /dead/retry` and `POST /dead/discard` is `{"search": "mail/", "kind": "mail",
//! "queue": "mails", "limit": 500}`, all of which can be left out: `{}` means all dead jobs. The
//! answer is `{"changed": 500, "after": "KEY"}`. While `after` is not `null`, there may be more:
//! ask again with this `"after"`. A call changes at most 500 jobs, and only those that are dead at
//! this moment, and that no session of PostgreSQL has locked: see [`Queue::retry_dead`].
//!
//! There are no users or passwords: listen on the loopback interface, or put a proxy in front. The
//! layer [`SameOrigin`] refuses requests of pages of other sites, with plain text.

mod dead;
mod families;
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod text;

use axum::{
    Json, Router,
    extract::{
        Path, Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post, put},
};
use serde::{Deserialize, Serialize};
use tourbillon_axum::SameOrigin;
use tourbillon_cron::jiff::Timestamp;

use tourbillon_jobs::{
    Queue, QueueError, Repeat, Time, When,
    job::{self, DEFAULT_PRIORITY, DEFAULT_QUEUE, Job, parse_traceparent},
    store::{Cancelled, Listing, Moved, Replaced, Scheduled, Store, StoreError},
};

pub use self::metrics::{metrics_router, prometheus};
#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::observe;

/// The page's own script and style are in the page. It loads nothing else, and the browser refuses
/// to make HTML from text.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The most jobs that one listing has.
const MOST_LISTED: usize = 1000;

/// How many bytes of a payload and of an error a listing has. [`MOST_LISTED`] jobs then have at
/// most 1 MiB.
const BEGINNING: usize = 256;

/// Returns the routes of the API and the page, for requests to an IP address or `localhost`.
pub fn router<S: Store>(queue: Queue<S>) -> Router {
    router_for(queue, SameOrigin::new())
}

/// Returns the routes of the API and the page, for requests that `guard` accepts: it may allow
/// further names of this server.
pub fn router_for<S: Store>(queue: Queue<S>, guard: SameOrigin) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/jobs", get(list::<S>).post(schedule::<S>))
        .route(
            "/jobs/{*key}",
            get(find::<S>).patch(reschedule::<S>).delete(cancel::<S>),
        )
        .route("/dead/retry", post(dead::retry::<S>))
        .route("/dead/discard", post(dead::discard::<S>))
        .route("/counts", get(count::<S>))
        .route("/paused", get(paused::<S>))
        .route("/paused/{*name}", put(pause::<S>).delete(resume::<S>))
        .layer(guard)
        .with_state(queue)
}

/// An error, as the client gets it.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.1 });
        (self.0, Json(body)).into_response()
    }
}

impl From<QueueError> for Refusal {
    fn from(error: QueueError) -> Self {
        let status = match &error {
            QueueError::Key
            | QueueError::Traceparent
            | QueueError::Kind
            | QueueError::Queue
            | QueueError::Priority(_)
            | QueueError::Args(_)
            | QueueError::Payload(_)
            | QueueError::Store(StoreError::Refused(_)) => StatusCode::BAD_REQUEST,
            QueueError::Store(StoreError::Full) => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl From<JsonRejection> for Refusal {
    fn from(error: JsonRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(error: QueryRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

fn bad(text: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text.into())
}

fn not_found() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, "there is no such job".into())
}

/// When a job is due, as a client says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    at: Option<String>,
    #[serde(rename = "in")]
    delay: Option<String>,
    cron: Option<String>,
    zone: Option<String>,
}

impl Times {
    fn read(self) -> Result<When, Refusal> {
        match self {
            Self {
                at: Some(at),
                delay: None,
                cron: None,
                zone: None,
            } => {
                let at: Timestamp = at
                    .parse()
                    .map_err(|error| bad(format!("`at`: {error}, such as 2027-01-31T12:00:00Z")))?;
                // A part of a microsecond is rounded up, so that the job is not early.
                let micros = at.as_nanosecond().div_euclid(1000);
                let rest = i128::from(at.as_nanosecond().rem_euclid(1000) > 0);
                let micros = i64::try_from(micros + rest).map_err(|_| bad("`at` is too late"))?;
                Ok(When::At(Time::from_micros(micros)))
            }
            Self {
                at: None,
                delay: Some(delay),
                cron: None,
                zone: None,
            } => {
                let delay = humantime::parse_duration(&delay)
                    .map_err(|error| bad(format!("`in`: {error}, such as 250ms or 1m 30s")))?;
                Ok(When::In(delay))
            }
            Self {
                at: None,
                delay: None,
                cron: Some(pattern),
                zone,
            } => {
                let repeat = Repeat::parse(&pattern, zone.as_deref().unwrap_or("UTC"))
                    .map_err(|error| bad(format!("`cron`: {error}")))?;
                Ok(When::Cron(repeat))
            }
            _ => Err(bad(
                "give one of `at`, `in` and `cron`; `zone` goes with `cron` only",
            )),
        }
    }
}

/// The fields of [`Times`] are here once more, as serde cannot refuse unknown fields otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewJob {
    key: String,
    #[serde(default)]
    kind: String,
    queue: Option<String>,
    priority: Option<u8>,
    #[serde(default)]
    replace: bool,
    unique_for: Option<String>,
    traceparent: Option<String>,
    #[serde(default)]
    payload: String,
    at: Option<String>,
    #[serde(rename = "in")]
    delay: Option<String>,
    cron: Option<String>,
    zone: Option<String>,
}

#[derive(Serialize)]
struct Shown {
    key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    queue: String,
    priority: u8,
    payload: String,
    state: &'static str,
    at: String,
    due: String,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    /// Whether the payload or the error goes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

impl Shown {
    /// Shows a part of a job. It has some bytes more than are shown, to tell whether it goes on.
    fn beginning(job: Job) -> Self {
        let error = job.error.as_ref().map_or(0, String::len);
        let cut = job.payload.len().max(error) > BEGINNING;
        Self {
            cut,
            ..job.cut(BEGINNING).into()
        }
    }
}

impl From<Job> for Shown {
    fn from(job: Job) -> Self {
        Self {
            key: job.key,
            kind: job.kind,
            queue: job.queue,
            priority: job.priority,
            payload: String::from_utf8_lossy(&job.payload).into_owned(),
            state: match job.state {
                job::State::Waiting => "waiting",
                job::State::Running => "running",
                job::State::Dead => "dead",
            },
            at: show(job.at),
            due: show(job.due),
            attempts: job.attempts,
            cron: job
                .repeat
                .as_ref()
                .map(|repeat| repeat.pattern().to_owned()),
            zone: job.repeat.as_ref().map(|repeat| repeat.zone().to_owned()),
            error: job.error,
            traceparent: job.traceparent,
            cut: false,
        }
    }
}

fn show(time: Time) -> String {
    match Timestamp::from_microsecond(time.as_micros()) {
        Ok(time) => format!("{time:.6}"),
        // Beyond the year 9999.
        Err(_) => format!("{} µs since 1970", time.as_micros()),
    }
}

async fn page() -> impl IntoResponse {
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, Html(include_str!("page.html")))
}

/// Returns the trace context of a request. As W3C wants it, an invalid one counts as none, and so
/// do two of them.
fn trace_of(headers: &HeaderMap) -> Option<String> {
    let mut all = headers.get_all("traceparent").iter();
    let (header, None) = (all.next()?, all.next()) else {
        return None;
    };
    parse_traceparent(header.to_str().ok()?)
}

async fn schedule<S: Store>(
    State(queue): State<Queue<S>>,
    headers: HeaderMap,
    body: Result<Json<NewJob>, JsonRejection>,
) -> Result<Response, Refusal> {
    let Json(job) = body?;
    let times = Times {
        at: job.at,
        delay: job.delay,
        cron: job.cron,
        zone: job.zone,
    };
    let when = times.read()?;
    // A job that repeats is no part of one request.
    let of_request = match when.repeat() {
        None => trace_of(&headers),
        Some(_) => None,
    };
    let priority = job.priority.unwrap_or(DEFAULT_PRIORITY);
    let (replace, unique_for, traceparent) = (job.replace, job.unique_for, job.traceparent);
    let job = job::NewJob::new(job.key, when, job.payload)
        .kind(job.kind)
        .queue(job.queue.unwrap_or_else(|| DEFAULT_QUEUE.into()))
        .priority(priority);
    let job = match unique_for {
        None => job,
        Some(time) => {
            let time = humantime::parse_duration(&time)
                .map_err(|error| bad(format!("`unique_for`: {error}, such as 10m or 1day")))?;
            job.unique_for(time)
        }
    };
    let job = match traceparent.or(of_request) {
        Some(traceparent) => job.traceparent(traceparent),
        None => job,
    };
    let never = || bad("the cron pattern has no further occurrence");
    if replace {
        let (status, running, at) = match queue.schedule_or_replace(job).await? {
            Replaced::Created { at } => (StatusCode::CREATED, false, at),
            Replaced::Replaced { at } => (StatusCode::OK, false, at),
            Replaced::WhileRunning { at } => (StatusCode::OK, true, at),
            Replaced::Never => return Err(never()),
        };
        let created = status == StatusCode::CREATED;
        let body = serde_json::json!({
            "created": created, "replaced": !created, "running": running, "at": show(at),
        });
        return Ok((status, Json(body)).into_response());
    }
    let (status, at) = match queue.schedule_job(job).await? {
        Scheduled::Created { at } => (StatusCode::CREATED, at),
        Scheduled::Exists { at } => (StatusCode::OK, at),
        Scheduled::Never => return Err(never()),
    };
    let created = status == StatusCode::CREATED;
    let body = serde_json::json!({ "created": created, "at": show(at) });
    Ok((status, Json(body)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    search: String,
    kind: Option<String>,
    queue: Option<String>,
    state: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

async fn list<S: Store>(
    State(queue): State<Queue<S>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Vec<Shown>>, Refusal> {
    let Query(wanted) = wanted?;
    let dead = match wanted.state.as_deref() {
        None | Some("") => None,
        Some("live") => Some(false),
        Some("dead") => Some(true),
        Some(_) => return Err(bad("`state` is `live` or `dead`")),
    };
    let listing = Listing {
        search: wanted.search,
        kind: wanted.kind,
        queue: wanted.queue,
        dead,
        after: wanted.after,
        limit: wanted.limit.unwrap_or(100).min(MOST_LISTED),
        // A character that is cut may take up to three more.
        beginning: BEGINNING + 4,
    };
    let jobs = queue.list(listing).await?;
    Ok(Json(jobs.into_iter().map(Shown::beginning).collect()))
}

async fn find<S: Store>(
    State(queue): State<Queue<S>>,
    Path(key): Path<String>,
) -> Result<Json<Shown>, Refusal> {
    let job = queue.get(key).await?.ok_or_else(not_found)?;
    Ok(Json(job.into()))
}

async fn reschedule<S: Store>(
    State(queue): State<Queue<S>>,
    Path(key): Path<String>,
    body: Result<Json<Times>, JsonRejection>,
) -> Result<Response, Refusal> {
    let Json(times) = body?;
    let (at, running) = match queue.reschedule(key, times.read()?).await? {
        Moved::Moved { at } => (at, false),
        Moved::WhileRunning { at } => (at, true),
        Moved::NotFound => return Err(not_found()),
        Moved::Never => return Err(bad("the cron pattern has no further occurrence")),
    };
    let body = serde_json::json!({ "at": show(at), "running": running });
    Ok(Json(body).into_response())
}

async fn cancel<S: Store>(
    State(queue): State<Queue<S>>,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    let running = match queue.cancel(key).await? {
        Cancelled::Cancelled => false,
        Cancelled::WhileRunning => true,
        Cancelled::NotFound => return Err(not_found()),
    };
    Ok(Json(serde_json::json!({ "running": running })).into_response())
}

async fn count<S: Store>(State(queue): State<Queue<S>>) -> Result<Response, Refusal> {
    let counts = queue.count().await?;
    let body = serde_json::json!({ "live": counts.live, "dead": counts.dead });
    Ok(Json(body).into_response())
}

async fn paused<S: Store>(State(queue): State<Queue<S>>) -> Result<Json<Vec<String>>, Refusal> {
    Ok(Json(queue.paused().await?))
}

async fn pause<S: Store>(
    State(queue): State<Queue<S>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    queue.pause(name).await?;
    Ok(Json(serde_json::json!({ "paused": true })).into_response())
}

async fn resume<S: Store>(
    State(queue): State<Queue<S>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    queue.resume(name).await?;
    Ok(Json(serde_json::json!({ "paused": false })).into_response())
}
