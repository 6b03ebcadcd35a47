//! The spans and events by which tokio-console sees tasks, with tokio's targets and fields: for the
//! package in the folder `crates/tokio` alone.

use std::{future::Future, marker::PhantomData, num::NonZeroU64, panic::Location};

use tourbillon_tasks::{WakerCall, Woken};
use tracing::{
    Span,
    instrument::{Instrument, Instrumented},
    trace_span,
};

use crate::{
    engine::{
        job::TaskJob,
        task_core::{id::Id, meta::TaskMeta},
    },
    metrics::spawned::Spawned,
    task::policy::Schedule,
};

/// Puts the future of a task into a span. `S` schedules the task.
pub(super) fn task<S: Schedule, F: Future>(future: F, spawned: Spawned, id: Id) -> Instrumented<F> {
    let span = match S::KIND {
        "blocking" => of_blocking(S::name::<F>(), spawned, id, size_of::<F>()),
        kind => of_task(kind, spawned, id, size_of::<F>()),
    };
    future.instrument(span)
}

/// Puts the future of a `block_on` into a span.
pub fn block_on<F: Future>(future: F, place: &'static Location<'static>) -> Instrumented<F> {
    let span = of_task("block_on", Spawned::at(place), Id::fresh(), size_of::<F>());
    future.instrument(span)
}

fn of_task(kind: &'static str, spawned: Spawned, id: Id, size: usize) -> Span {
    let place = spawned.place();
    trace_span!(
        target: "tokio::task",
        parent: None,
        "runtime.spawn",
        %kind,
        task.name = %spawned.name().unwrap_or_default(),
        task.id = id.number(),
        size.bytes = size,
        loc.file = place.file(),
        loc.line = place.line(),
        loc.col = place.column(),
    )
}

fn of_blocking(function: &'static str, spawned: Spawned, id: Id, size: usize) -> Span {
    let place = spawned.place();
    trace_span!(
        target: "tokio::task::blocking",
        "runtime.spawn",
        kind = %"blocking",
        task.name = %spawned.name().unwrap_or_default(),
        task.id = id.number(),
        "fn" = %function,
        size.bytes = size,
        loc.file = place.file(),
        loc.line = place.line(),
        loc.col = place.column(),
    )
}

/// Returns the number of the span, if a subscriber wants it.
pub(super) fn number<F>(future: &Instrumented<F>) -> Option<NonZeroU64> {
    future.span().id().map(|id| id.into_non_zero_u64())
}

/// Tells the subscriber that a waker of a task was called.
pub(super) fn waker_called(task: &TaskMeta, call: WakerCall) {
    if let Some(span) = task.span {
        let op = match call {
            WakerCall::Clone => "waker.clone",
            WakerCall::Wake => "waker.wake",
            WakerCall::WakeByRef => "waker.wake_by_ref",
            WakerCall::Drop => "waker.drop",
        };
        tracing::trace!(target: "tokio::task::waker", op, task.id = span.get());
    }
}

/// Schedules as `S` does a task that has the name of an `F`, which is in a span.
pub(super) struct Inside<S, F>(PhantomData<(S, F)>);

impl<S: Schedule, F: 'static> Schedule for Inside<S, F> {
    fn schedule(task: TaskJob, woken: Woken) {
        S::schedule(task, woken);
    }

    fn name<G>() -> &'static str {
        S::name::<F>()
    }
}
