//! The span in which a handler runs, with feature `tracing`.

use std::{future::Future, sync::Arc};

use super::{Attempt, Failure, stats::Counters};

/// How a handler ended: `None` if its time limit was over.
type Ended = Option<Result<(), Failure>>;

#[cfg(feature = "tracing")]
mod with {
    use tracing::{Instrument, Span, field::Empty};

    use super::*;
    use crate::{
        node::{Cause, NodeBuilder, errors::guarded, failure::Then, run::cut},
        store::Store,
    };

    type OnSpan = dyn Fn(&Attempt, &Span) + Send + Sync;

    impl<S: Store> NodeBuilder<S> {
        /// Calls `f` with the span of each attempt before the handler runs in it. So `f` can give
        /// the span the parent or the link that [`Attempt::traceparent`] names:
        /// `tracing-opentelemetry` does not change the parent of a span that has been entered. A
        /// span that is disabled, by a filter or as there is no subscriber, is not told.
        ///
        /// `f` runs in the task of the handler, within the time limit of the attempt, and should
        /// not block. One that does counts as a handler that does: see
        /// [`on_blocked`](Self::on_blocked). If `f` panics, the handler runs all the same.
        pub fn on_span(mut self, f: impl Fn(&Attempt, &Span) + Send + Sync + 'static) -> Self {
            self.spans = Spans(Some(Arc::new(f)));
            self
        }
    }

    /// Who is told of the spans of a node's attempts.
    #[derive(Clone, Default)]
    pub(in crate::node) struct Spans(Option<Arc<OnSpan>>);

    impl Spans {
        /// Returns what makes the span of one attempt.
        pub(in crate::node) fn maker(&self, counters: &Arc<Counters>) -> Maker {
            let on_span = self.0.clone();
            Maker(on_span.map(|on_span| (on_span, counters.clone())))
        }
    }

    /// Makes the span of an attempt.
    pub(in crate::node) struct Maker(Option<(Arc<OnSpan>, Arc<Counters>)>);

    impl Maker {
        /// Makes the span, and tells the user of it.
        pub(in crate::node) fn make(self, attempt: &Attempt) -> AttemptSpan {
            let span = AttemptSpan::new(attempt);
            if let Some((on_span, counters)) = self.0
                && !span.0.is_disabled()
            {
                guarded(&counters, || on_span(attempt, &span.0));
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
        pub(in crate::node) fn maker(&self, _: &Arc<Counters>) -> Maker {
            Maker
        }
    }

    pub(in crate::node) struct Maker;

    impl Maker {
        pub(in crate::node) fn make(self, _: &Attempt) -> AttemptSpan {
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
pub(super) use self::with::{AttemptSpan, Maker, Spans};
#[cfg(not(feature = "tracing"))]
pub(super) use self::without::{AttemptSpan, Maker, Spans};
