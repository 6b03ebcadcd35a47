//! The span in which a handler runs, with feature `tracing`.

use std::future::Future;

use super::{Attempt, Failure, stats::Counters};

/// How a handler ended: `None` if its time limit was over.
type Ended = Option<Result<(), Failure>>;

#[cfg(feature = "tracing")]
mod with {
    use std::sync::Arc;

    use tracing::{Instrument, Span, field::Empty};

    use super::*;
    use crate::{
        node::{Cause, NodeBuilder, errors::guarded, failure::Then, run::cut},
        store::Store,
    };

    type OnSpan = dyn Fn(&Attempt, &Span) + Send + Sync;

    impl<S: Store> NodeBuilder<S> {
        /// Calls `f` with the span of each attempt before the handler runs in it. So `f` can make
        /// the span a part of the trace that the job belongs to
        /// ([`Attempt::traceparent`]): `tracing-opentelemetry` does not change the parent of a span
        /// that has been entered.
        ///
        /// `f` runs in the task of the handler, and should not block. If it panics, the handler runs
        /// all the same.
        pub fn on_span(mut self, f: impl Fn(&Attempt, &Span) + Send + Sync + 'static) -> Self {
            self.spans = Spans(Some(Arc::new(f)));
            self
        }
    }

    /// What makes the spans of a node's attempts.
    #[derive(Clone, Default)]
    pub(in crate::node) struct Spans(Option<Arc<OnSpan>>);

    impl Spans {
        /// Makes the span of an attempt, and tells the user of it.
        pub(in crate::node) fn make(&self, attempt: &Attempt, counters: &Counters) -> AttemptSpan {
            let span = AttemptSpan::new(attempt);
            if let Some(on_span) = &self.0 {
                guarded(counters, || on_span(attempt, &span.0));
            }
            span
        }
    }

    /// The span of an attempt. Its fields have the names of OpenTelemetry's semantic conventions
    /// for messaging, if these have one, and those that `tracing-opentelemetry` knows.
    pub(in crate::node) struct AttemptSpan(Span);

    impl AttemptSpan {
        fn new(attempt: &Attempt) -> Self {
            Self(tracing::info_span!(
                target: "tourbillon_jobs::attempt",
                parent: None,
                "attempt",
                "otel.name" = %format_args!("process {}", attempt.queue),
                "otel.kind" = "consumer",
                "otel.status_code" = Empty,
                "otel.status_description" = Empty,
                "messaging.system" = "tourbillon_jobs",
                "messaging.operation.name" = "process",
                "messaging.operation.type" = "process",
                "messaging.destination.name" = %attempt.queue,
                "messaging.message.id" = %attempt.key,
                "messaging.message.body.size" = attempt.payload.len() as u64,
                "error.type" = Empty,
                "job.kind" = %attempt.kind,
                "job.attempt" = attempt.number,
                "job.token" = %attempt.token,
                "job.traceparent" = attempt.traceparent.as_deref(),
            ))
        }

        /// Lets a future run in the span.
        pub(in crate::node) fn within<F: Future>(
            &self,
            future: F,
        ) -> impl Future<Output = F::Output> + use<F> {
            future.instrument(self.0.clone())
        }

        /// Says how the handler ended.
        pub(in crate::node) fn end(&self, ended: &Ended) {
            let (error, text) = match ended {
                None => ("time_limit", "it took too long".into()),
                Some(Err(failure)) if !matches!(failure.then, Then::Snooze(_)) => {
                    let error = match failure.cause {
                        Cause::Panic => "panic",
                        _ => "error",
                    };
                    (error, cut(failure.error.as_str()))
                }
                Some(_) => return,
            };
            self.0.record("error.type", error);
            self.0.record("otel.status_code", "ERROR");
            self.0.record("otel.status_description", &*text);
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod without {
    use super::*;

    #[derive(Clone, Default)]
    pub(in crate::node) struct Spans;

    impl Spans {
        pub(in crate::node) fn make(&self, _: &Attempt, _: &Counters) -> AttemptSpan {
            AttemptSpan
        }
    }

    pub(in crate::node) struct AttemptSpan;

    impl AttemptSpan {
        pub(in crate::node) fn within<F: Future>(&self, future: F) -> F {
            future
        }

        pub(in crate::node) fn end(&self, _: &Ended) {}
    }
}

#[cfg(feature = "tracing")]
pub(super) use self::with::Spans;
#[cfg(not(feature = "tracing"))]
pub(super) use self::without::Spans;
