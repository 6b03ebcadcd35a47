//! The metrics of a node and a queue as text for Prometheus.

use std::{
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
    node::{MetricsReader, NodeMetrics},
    queue::QueueStats,
    store::{Counts, Store},
};

use crate::{
    families::{Of, Sink, visit},
    text::Text,
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
    let mut text = Text::default();
    visit(&mut text, &node.read(), &queue.stats());
    // While the store does not answer, the other metrics tell why.
    if let Some((counts, paused)) = stored {
        of_store(&mut text, counts, &paused);
    }
    let headers = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (headers, text.out).into_response()
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
    visit(&mut text, node, queue);
    text.out
}

/// Gives what all programs that share the store see.
fn of_store(sink: &mut impl Sink, counts: Counts, paused: &[String]) {
    sink.one(
        "live",
        Of::Gauge,
        "Jobs in the store that are not dead.",
        counts.live,
    );
    sink.one("dead", Of::Gauge, "Dead jobs in the store.", counts.dead);
    sink.one(
        "paused_queues",
        Of::Gauge,
        "How many queues are paused.",
        paused.len() as u64,
    );
    sink.family(
        "paused",
        Of::Gauge,
        "Queues that are paused, the first 100 by name.",
    );
    let mut paused: Vec<_> = paused.iter().collect();
    paused.sort_unstable();
    for queue in paused.into_iter().take(MOST_PAUSED) {
        sink.sample(&[("queue", queue)], 1);
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
        let mut text = Text::default();
        of_store(&mut text, Counts { live: 0, dead: 0 }, &paused);
        let text = text.out;
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
