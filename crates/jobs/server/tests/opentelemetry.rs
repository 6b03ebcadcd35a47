//! Attempts in the traces of those who add their jobs, as the guide makes them. A process of its
//! own, as the subscriber is that of the whole process.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use opentelemetry::{
    propagation::TextMapPropagator,
    trace::{SpanId, SpanKind, TracerProvider},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{InMemorySpanExporter, SdkTracerProvider, SpanData},
};
use tourbillon::{Runtime, time::sleep};
use tourbillon_jobs::{Attempt, Backoff, Failure, NewJob, Node, Queue, sqlite::Sqlite};
use tourbillon_support::{PATIENCE, dir::Dir};
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// Returns the `traceparent` of a span.
fn traceparent(span: &Span) -> String {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove("traceparent").unwrap()
}

/// Makes a span a child of the one in which its job was added.
fn continue_trace(attempt: &Attempt, span: &Span) {
    if let Some(trace) = &attempt.traceparent {
        let carrier = HashMap::from([("traceparent".to_owned(), trace.clone())]);
        let parent = TraceContextPropagator::new().extract(&carrier);
        span.set_parent(parent).unwrap();
    }
}

async fn handle(attempt: Attempt) -> Result<(), Failure> {
    let _work = info_span!("work").entered();
    match attempt.number {
        1 => Err(Failure::retry("on purpose")),
        _ => Ok(()),
    }
}

#[test]
fn an_attempt_continues_the_trace_of_who_added_its_job() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("jobs"));
    tracing_subscriber::registry().with(layer).init();
    let dir = Dir::new();
    Runtime::new().unwrap().block_on(async {
        let queue = Queue::new(Sqlite::open(dir.path("jobs.db")).unwrap());
        let request = info_span!("request");
        let job = NewJob::new("traced", Duration::ZERO, "").traceparent(traceparent(&request));
        queue.schedule_job(job).await.unwrap();
        drop(request);
        queue.schedule("other", Duration::ZERO, "").await.unwrap();
        let node = Node::builder(queue.clone())
            .backoff(Backoff {
                first: Duration::from_millis(2),
                ..Backoff::default()
            })
            .on_span(continue_trace)
            .start(handle);
        // The request, and two attempts of each job, with the work of each.
        let begun = Instant::now();
        while exporter.get_finished_spans().unwrap().len() < 9 {
            assert!(begun.elapsed() < PATIENCE, "the jobs do not end");
            sleep(Duration::from_millis(2)).await;
        }
        let panics = node.stats().panics;
        assert!(node.stop(PATIENCE).await);
        assert_eq!(panics, 0);
    });
    let spans = exporter.get_finished_spans().unwrap();
    let named = |name: &str| {
        let spans = spans.iter().filter(|span| span.name == *name);
        spans.collect::<Vec<&SpanData>>()
    };
    let [request] = named("request")[..] else {
        panic!("{spans:?}");
    };
    let attempts = named("process default");
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
    let works = named("work");
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
