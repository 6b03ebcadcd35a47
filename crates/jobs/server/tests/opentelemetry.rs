//! Attempts in the traces of those who add their jobs, as the guide makes them. A process of its
//! own, as the subscriber is that of the whole process.

use std::time::{Duration, Instant};

use opentelemetry::trace::{SpanId, SpanKind};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tourbillon::{Runtime, time::sleep};
use tourbillon_jobs::{Attempt, Backoff, Failure, NewJob, Node, Queue, Repeat, sqlite::Sqlite};
use tourbillon_support::{PATIENCE, dir::Dir};
use tracing::{Instrument, info_span};

use guide::{add, follow, subscribe};

/// The code of the guide.
#[path = "guide/opentelemetry.rs"]
mod guide;

/// A context that is not sampled.
const NOT_SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

async fn handle(attempt: Attempt) -> Result<(), Failure> {
    let _work = info_span!("work").entered();
    match (attempt.repeats, attempt.number) {
        (false, 1) => Err(Failure::retry("on purpose")),
        _ => Ok(()),
    }
}

/// Returns the spans of a name.
fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == *name).collect()
}

/// Waits until this many spans of a name have ended, and returns all that have.
async fn finished(exporter: &InMemorySpanExporter, name: &str, count: usize) -> Vec<SpanData> {
    let begun = Instant::now();
    loop {
        let spans = exporter.get_finished_spans().unwrap();
        if named(&spans, name).len() >= count {
            return spans;
        }
        assert!(begun.elapsed() < PATIENCE, "{spans:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn the_guide_has_the_code_that_is_tested() {
    let guide = include_str!("../../GUIDE.md");
    let code = include_str!("guide/opentelemetry.rs");
    assert!(guide.contains(&format!("\n```rust,ignore\n{code}```\n")));
}

#[test]
fn an_attempt_continues_the_trace_of_who_added_its_job() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    subscribe(&provider);
    let dir = Dir::new();
    Runtime::new().unwrap().block_on(async {
        let queue = Queue::new(Sqlite::open(dir.path("jobs.db")).unwrap());
        let request = info_span!("request");
        let job = NewJob::new("traced", Duration::ZERO, "");
        let added = add(&queue, job).instrument(request.clone()).await;
        added.unwrap();
        drop(request);
        let other = NewJob::new("other", Duration::ZERO, "");
        add(&queue, other).await.unwrap();
        let node = Node::builder(queue.clone())
            .backoff(Backoff {
                first: Duration::from_millis(2),
                ..Backoff::default()
            })
            .on_span(follow)
            .start(handle);
        // Two attempts of each job.
        is_continued(&finished(&exporter, "process default", 4).await);
        exporter.reset();
        // A parent that is not sampled switches a span off, and a link does not.
        let quiet = NewJob::new("quiet", Duration::ZERO, "").traceparent(NOT_SAMPLED);
        queue.schedule_job(quiet).await.unwrap();
        let begun = Instant::now();
        while queue.get("quiet").await.unwrap().is_some() {
            assert!(begun.elapsed() < PATIENCE, "the job does not end");
            sleep(Duration::from_millis(2)).await;
        }
        let each = Repeat::parse("* * * * * *", "UTC").unwrap();
        let cron = NewJob::new("cron", each, "").traceparent(NOT_SAMPLED);
        queue.schedule_job(cron).await.unwrap();
        is_linked(&finished(&exporter, "process default", 2).await);
        let panics = node.stats().panics;
        assert!(node.stop(PATIENCE).await);
        assert_eq!(panics, 0);
    });
}

/// Checks the attempts of a cron job.
fn is_linked(spans: &[SpanData]) {
    let attempts = named(spans, "process default");
    for attempt in &attempts {
        assert_eq!(attempt.parent_span_id, SpanId::INVALID);
        let [link] = &attempt.links.links[..] else {
            panic!("{attempt:?}");
        };
        let (trace, parent) = (&NOT_SAMPLED[3..35], &NOT_SAMPLED[36..52]);
        assert_eq!(link.span_context.trace_id().to_string(), trace);
        assert_eq!(link.span_context.span_id().to_string(), parent);
        assert_ne!(attempt.span_context.trace_id().to_string(), trace);
    }
    let traces: Vec<_> = attempts
        .iter()
        .map(|it| it.span_context.trace_id())
        .collect();
    assert_ne!(traces[0], traces[1]);
}

/// Checks two attempts of each of two jobs, of which a request has added one.
fn is_continued(spans: &[SpanData]) {
    let [request] = named(spans, "request")[..] else {
        panic!("{spans:?}");
    };
    let attempts = named(spans, "process default");
    assert_eq!(attempts.len(), 4, "{attempts:?}");
    let (traced, others): (Vec<&SpanData>, Vec<_>) = attempts
        .iter()
        .partition(|span| span.parent_span_id != SpanId::INVALID);
    assert_eq!(traced.len(), 2);
    for attempt in traced {
        assert_eq!(attempt.span_kind, SpanKind::Consumer);
        assert_eq!(attempt.parent_span_id, request.span_context.span_id());
        let trace = request.span_context.trace_id();
        assert_eq!(attempt.span_context.trace_id(), trace);
        assert!(attempt.parent_span_is_remote);
    }
    // A job without a context begins a trace with each attempt.
    let mut traces: Vec<_> = others
        .iter()
        .map(|span| span.span_context.trace_id())
        .collect();
    traces.push(request.span_context.trace_id());
    traces.sort_by_key(|trace| trace.to_bytes());
    traces.dedup();
    assert_eq!(traces.len(), 3);
    // What the handler does is within its attempt.
    let works = named(spans, "work");
    assert_eq!(works.len(), 4);
    for work in works {
        let is_parent = |it: &&SpanData| it.span_context.span_id() == work.parent_span_id;
        let attempt = attempts.iter().copied().find(is_parent).unwrap();
        assert_eq!(
            attempt.span_context.trace_id(),
            work.span_context.trace_id()
        );
    }
}
