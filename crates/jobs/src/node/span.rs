//! The span in which a handler runs, with feature `tracing`.

use std::future::Future;

use super::{Attempt, Failure};

/// How a handler ended: `None` if its time limit was over.
type Ended = Option<Result<(), Failure>>;

#[cfg(feature = "tracing")]
mod with {
    use tracing::{Instrument, Span, field::Empty};

    use super::*;
    use crate::node::{Cause, failure::Then, run::cut};

    /// The span of an attempt. Its fields have the names of OpenTelemetry's semantic conventions
    /// for messaging, if these have one, and those that `tracing-opentelemetry` knows.
    pub(in crate::node) struct AttemptSpan(Span);

    impl AttemptSpan {
        pub(in crate::node) fn new(attempt: &Attempt) -> Self {
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

    pub(in crate::node) struct AttemptSpan;

    impl AttemptSpan {
        pub(in crate::node) fn new(_: &Attempt) -> Self {
            Self
        }

        pub(in crate::node) fn within<F: Future>(&self, future: F) -> F {
            future
        }

        pub(in crate::node) fn end(&self, _: &Ended) {}
    }
}

#[cfg(feature = "tracing")]
pub(super) use self::with::AttemptSpan;
#[cfg(not(feature = "tracing"))]
pub(super) use self::without::AttemptSpan;
