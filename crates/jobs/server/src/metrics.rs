//! The metrics of a node and a queue as text for Prometheus.

use std::{
    fmt::{Display, Write},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::Mutex;
use tourbillon::{Handle, time::timeout};
use tourbillon_axum::SameOrigin;
use tourbillon_jobs::{
    Queue,
    node::{Histogram, KindMetrics, MetricsReader, NodeMetrics},
    queue::QueueStats,
    store::{Counts, Store},
};

/// How long the store may take to count its jobs. Prometheus waits 10 s for all.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long an answer of the store is shown. A store may read all its jobs to count them.
const FRESH: Duration = Duration::from_secs(15);

/// How many queues that are paused have a sample each. Their names may come from anybody.
const MOST_PAUSED: usize = 100;

/// Returns the route `GET /metrics`: the metrics of a node and of a queue, and how many jobs the
/// store has, as text for Prometheus (version 0.0.4). `guard` is as for
/// [`router_for`](crate::router_for): Prometheus asks by a name that it allows.
///
/// The store counts its jobs when it is asked for the metrics, once at a time and at most every 15
/// s. If this takes longer than 3 s, what it says of its jobs is in the answer to a later request.
///
/// ```
/// use tourbillon_axum::SameOrigin;
/// use tourbillon_jobs::{Attempt, Failure, Node, Queue, sqlite::Sqlite};
/// use tourbillon_jobs_server::{metrics_router, router_for};
///
/// # let dir = std::env::temp_dir().join(format!("jobs-metrics-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("jobs.db");
/// # async fn work(_: Attempt) -> Result<(), Failure> { Ok(()) }
/// tourbillon::Runtime::new()?.block_on(async {
///     let queue = Queue::new(Sqlite::open(&path)?);
///     let node = Node::builder(queue.clone()).start(work);
///     let guard = SameOrigin::new().allow_host("jobs.example.com")?;
///     let metrics = metrics_router(queue.clone(), node.metrics_reader(), guard.clone());
///     let router = router_for(queue, guard).merge(metrics);
/// #   drop(router);
/// #   node.stop(std::time::Duration::from_secs(10)).await;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn metrics_router<S: Store>(queue: Queue<S>, node: MetricsReader, guard: SameOrigin) -> Router {
    Router::new()
        .route("/metrics", get(metrics::<S>))
        .layer(guard)
        .with_state((queue, node, Arc::default()))
}

/// The number of jobs, and the queues that are paused.
type Stored = (Counts, Vec<String>);

type Shown<S> = (Queue<S>, MetricsReader, Arc<Mutex<Asked<Stored>>>);

async fn metrics<S: Store>(State((queue, node, asked)): State<Shown<S>>) -> Response {
    // Ask the store first, so that the answer shows what came of it.
    let stored = stored(&queue, &asked).await;
    let mut text = prometheus(&node.read(), &queue.stats());
    // While the store does not answer, the other metrics tell why.
    if let Some((counts, paused)) = stored {
        of_store(&mut text, counts, &paused);
    }
    let headers = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (headers, text).into_response()
}

/// A question, and the last answer to it.
struct Asked<T> {
    answer: Option<(Instant, T)>,
    /// The question that has no answer yet. It goes on when its caller does not wait any more, and
    /// the next caller gets its answer.
    present: Option<Pin<Box<dyn Future<Output = Option<T>> + Send>>>,
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self {
            answer: None,
            present: None,
        }
    }
}

impl<T: Clone> Asked<T> {
    /// Returns the last answer if it is fresh at this moment. Otherwise waits for another one, and
    /// asks, unless a question has no answer yet.
    async fn get<F>(&mut self, now: Instant, ask: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        if let Some((at, answer)) = &self.answer
            && now.saturating_duration_since(*at) < FRESH
        {
            return Some(answer.clone());
        }
        let present = self.present.get_or_insert_with(|| Box::pin(ask()));
        let answer = present.as_mut().await;
        self.present = None;
        self.answer = answer.clone().map(|answer| (now, answer));
        answer
    }
}

/// Asks the store for its jobs and for the queues that are paused, if its last answer is not fresh.
async fn stored<S: Store>(queue: &Queue<S>, asked: &Mutex<Asked<Stored>>) -> Option<Stored> {
    let runtime = Handle::try_current().ok();
    let queue = queue.clone();
    let ask = || {
        let asks = async move {
            let counts = queue.count().await.ok()?;
            Some((counts, queue.paused().await.ok()?))
        };
        let runtime = runtime.clone();
        async move {
            match runtime {
                // It must not keep what it has of the store while no request waits for it.
                Some(runtime) => runtime.spawn(asks).await.ok().flatten(),
                None => asks.await,
            }
        }
    };
    let answer = async { asked.lock().await.get(Instant::now(), ask).await };
    // Elsewhere there is no timer: the store has its own time limit.
    match runtime {
        Some(_) => timeout(PATIENCE, answer).await.ok()?,
        None => answer.await,
    }
}

/// Returns the metrics of a node and of a queue as text for Prometheus, in version 0.0.4 of its
/// format. The content type is `text/plain; version=0.0.4`.
pub fn prometheus(node: &NodeMetrics, queue: &QueueStats) -> String {
    let mut text = Text::default();
    of_node(&mut text, node);
    of_kinds(&mut text, &node.kinds);
    of_requests(&mut text, node);
    text.family(
        "answers_total",
        COUNTER,
        "Answers to clients of this process that schedule, move and cancel jobs.",
    );
    for (answer, value) in [
        ("created", queue.created),
        ("existing", queue.existing),
        ("replaced", queue.replaced),
        ("replaced_running", queue.replaced_running),
        ("moved", queue.moved),
        ("retried", queue.retried),
        ("discarded", queue.discarded),
        ("cancelled", queue.cancelled),
        ("missing", queue.missing),
        ("never", queue.never),
        ("failed", queue.failed),
    ] {
        text.sample("", &[("answer", answer)], value);
    }
    text.out
}

fn of_node(text: &mut Text, node: &NodeMetrics) {
    let total = &node.total;
    text.one(
        "held",
        GAUGE,
        "Jobs in the node's timers, or due and not begun.",
        total.held,
    );
    text.one(
        "blocked",
        GAUGE,
        "Attempts that are past their time limit and block their threads.",
        total.blocked,
    );
    text.one(
        "attempts_cancelled_total",
        COUNTER,
        "Attempts that learned that their job was cancelled, moved or replaced.",
        total.cancelled,
    );
    text.one("leases_total", COUNTER, "Leases of the node.", total.leases);
    text.one(
        "leases_lost_total",
        COUNTER,
        "Leases that ended before the node stopped.",
        total.leases_lost,
    );
    text.one(
        "has_lease",
        GAUGE,
        "Whether the node has a lease, so that it begins attempts.",
        u64::from(node.store.has_lease),
    );
    text.one(
        "callback_panics_total",
        COUNTER,
        "Panics of on_end, on_error, on_blocked and on_span.",
        total.panics,
    );
    text.one(
        "errors_untold_total",
        COUNTER,
        "Failures of which on_error was not told.",
        total.untold,
    );
}

/// A metric that each kind has: its name, whether it is a counter, its description and its value.
type OfKind = (
    &'static str,
    &'static str,
    &'static str,
    fn(&KindMetrics) -> u64,
);

/// A histogram that each kind has.
type Times = (&'static str, &'static str, fn(&KindMetrics) -> &Histogram);

fn of_kinds(text: &mut Text, kinds: &[KindMetrics]) {
    let all: [OfKind; 4] = [
        ("running", GAUGE, "Attempts whose handlers run.", |it| {
            it.running
        }),
        (
            "attempts_begun_total",
            COUNTER,
            "Attempts that began.",
            |it| it.begun,
        ),
        ("died_total", COUNTER, "Jobs that died here.", |it| it.dead),
        (
            "ends_refused_total",
            COUNTER,
            "Attempts whose end the store refused, as their token was stale.",
            |it| it.stale,
        ),
    ];
    for (name, of, help, value) in all {
        text.family(name, of, help);
        for kind in kinds {
            labelled(kind, &[], |labels| text.sample("", labels, value(kind)));
        }
    }
    text.family(
        "attempts_ended_total",
        COUNTER,
        "Attempts whose handlers have ended, by outcome.",
    );
    for kind in kinds {
        let others = kind.panicked + kind.timed_out;
        for (outcome, value) in [
            ("done", kind.done),
            ("failed", kind.failed - others),
            ("panicked", kind.panicked),
            ("timed_out", kind.timed_out),
            ("snoozed", kind.snoozed),
        ] {
            labelled(kind, &[("outcome", outcome)], |labels| {
                text.sample("", labels, value);
            });
        }
    }
    let times: [Times; 2] = [
        (
            "start_lateness_seconds",
            "How long after its time each attempt began.",
            |it| &it.lateness,
        ),
        (
            "attempt_duration_seconds",
            "How long each handler took.",
            |it| &it.duration,
        ),
    ];
    for (name, help, histogram) in times {
        text.family(name, HISTOGRAM, help);
        for kind in kinds {
            labelled(kind, &[], |labels| text.histogram(labels, histogram(kind)));
        }
    }
}

/// Calls `f` with the labels of a kind, and more. Kinds that share an entry have the label
/// `overflow`, as each name may be that of a kind.
fn labelled<'a>(
    kind: &'a KindMetrics,
    more: &[(&'a str, &'a str)],
    f: impl FnOnce(&[(&str, &str)]),
) {
    let name = kind.kind.as_deref();
    let mut labels = vec![
        ("queue", kind.queue.as_str()),
        ("kind", name.unwrap_or_default()),
    ];
    if name.is_none() {
        labels.push(("overflow", "true"));
    }
    labels.extend(more);
    f(&labels);
}

fn of_requests(text: &mut Text, node: &NodeMetrics) {
    text.one(
        "store_up",
        GAUGE,
        "Whether the store answered the node's last request.",
        u64::from(node.store.is_up),
    );
    text.family(
        "store_errors_total",
        COUNTER,
        "Requests of the node that failed at the store.",
    );
    for request in &node.store.requests {
        text.sample("", &[("request", request.name)], request.failed);
    }
    text.family(
        "store_request_duration_seconds",
        HISTOGRAM,
        "How long the store took for requests of the node.",
    );
    for request in &node.store.requests {
        text.histogram(&[("request", request.name)], &request.duration);
    }
}

/// Writes what all programs that share the store see.
fn of_store(text: &mut String, counts: Counts, paused: &[String]) {
    let mut more = Text {
        out: std::mem::take(text),
        ..Text::default()
    };
    more.one(
        "live",
        GAUGE,
        "Jobs in the store that are not dead.",
        counts.live,
    );
    more.one("dead", GAUGE, "Dead jobs in the store.", counts.dead);
    more.one(
        "paused_queues",
        GAUGE,
        "How many queues are paused.",
        paused.len() as u64,
    );
    more.family(
        "paused",
        GAUGE,
        "Queues that are paused, the first 100 by name.",
    );
    let mut paused: Vec<_> = paused.iter().collect();
    paused.sort_unstable();
    for queue in paused.into_iter().take(MOST_PAUSED) {
        more.sample("", &[("queue", queue)], 1);
    }
    *text = more.out;
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// What the name of each metric begins with.
const PREFIX: &str = "tourbillon_jobs_";

/// A writer of Prometheus' text. Names and numbers look as those of `tourbillon-exporters`.
#[derive(Default)]
struct Text {
    out: String,
    /// The name of the present family, without the prefix.
    name: &'static str,
}

impl Text {
    /// Begins a family. `help` has neither backslashes nor line breaks.
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        self.write(format_args!(
            "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"
        ));
    }

    /// Writes a family of one sample without labels.
    fn one(&mut self, name: &'static str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample("", &[], value);
    }

    /// Writes a sample of the present family. `suffix` follows the family's name.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let name = self.name;
        self.write(format_args!("{PREFIX}{name}{suffix}"));
        for (at, (name, label)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{name}=\""));
            for c in label.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '\n' => self.out.push_str("\\n"),
                    '"' => self.out.push_str("\\\""),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    /// Writes the samples of a histogram.
    fn histogram(&mut self, labels: &[(&str, &str)], times: &Histogram) {
        for (bound, within) in times.buckets() {
            let bound = format!("{:?}", bound.as_secs_f64());
            self.sample(
                "_bucket",
                &[labels, &[("le", bound.as_str())]].concat(),
                within,
            );
        }
        let last = [labels, &[("le", "+Inf")]].concat();
        self.sample("_bucket", &last, times.count());
        let sum = format!("{:?}", times.sum().as_secs_f64());
        self.sample("_sum", labels, sum);
        self.sample("_count", labels, times.count());
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use futures_lite::future::{block_on, poll_once};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_question_without_an_answer_is_the_only_one() {
        let (answers, answer) = oneshot::channel();
        let (mut asked, now) = (Asked::default(), Instant::now());
        let no_more = || -> Ready<Option<u32>> { panic!("it asks again") };
        let first = poll_once(asked.get(now, || async { answer.await.ok() }));
        assert_eq!(block_on(first), None);
        assert_eq!(block_on(poll_once(asked.get(now, no_more))), None);
        answers.send(7).unwrap();
        // Both are gone, and the next one gets the answer.
        assert_eq!(block_on(asked.get(now, no_more)), Some(7));
        let just_fresh = now + FRESH - Duration::from_millis(1);
        assert_eq!(block_on(asked.get(just_fresh, no_more)), Some(7));
        assert_eq!(block_on(asked.get(now + FRESH, || ready(None))), None);
        // What failed is asked again at once.
        assert_eq!(block_on(asked.get(now, || ready(Some(8)))), Some(8));
    }

    #[test]
    fn the_number_of_paused_queues_with_a_sample_has_a_bound() {
        let paused: Vec<_> = (0..250).rev().map(|it| format!("q-{it:03}")).collect();
        let mut text = String::new();
        of_store(&mut text, Counts { live: 0, dead: 0 }, &paused);
        let prefix = "tourbillon_jobs_paused{queue=\"q-";
        let named: Vec<_> = text.lines().filter(|it| it.starts_with(prefix)).collect();
        assert_eq!(named.len(), MOST_PAUSED);
        assert_eq!(named[99], format!("{prefix}099\"}} 1"));
        assert!(
            text.contains("\ntourbillon_jobs_paused_queues 250\n"),
            "{text}"
        );
    }
}
