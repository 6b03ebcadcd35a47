use std::collections::HashMap;

use opentelemetry::{
    propagation::TextMapPropagator,
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tourbillon_jobs::{
    Attempt, NewJob, Queue, QueueError,
    store::{Scheduled, Store},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// Sends the spans of this process to OpenTelemetry.
pub fn subscribe(provider: &SdkTracerProvider) {
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("jobs"));
    tracing_subscriber::registry().with(layer).init();
}

/// Adds a job that carries the trace context of the current span.
pub async fn add<S: Store>(queue: &Queue<S>, mut job: NewJob) -> Result<Scheduled, QueueError> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    job.traceparent = carrier.remove("traceparent");
    queue.schedule_job(job).await
}

/// Connects the span of an attempt with that of who added the job: `builder.on_span(follow)`.
pub fn follow(attempt: &Attempt, span: &Span) {
    let Some(trace) = &attempt.traceparent else {
        return;
    };
    let carrier = HashMap::from([("traceparent".to_owned(), trace.clone())]);
    let context = TraceContextPropagator::new().extract(&carrier);
    if attempt.repeats {
        span.add_link(context.span().span_context().clone());
    } else {
        // It fails if the span has been entered.
        let _ = span.set_parent(context);
    }
}
