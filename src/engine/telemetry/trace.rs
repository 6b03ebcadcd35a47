//! Feature `tracing`: a span around each callback, and events of the start, of rescues and of very
//! late timers.
//!
//! A timer with a callback keeps the number of the span that armed it, its *origin*. It keeps no
//! [`Span`](tracing::Span), which would keep the span open: a request would then last until the
//! last of its timers is over. A sleep needs no origin, because the task that polls it is in its
//! spans.
//!
//! While nothing subscribes, arming a timer and running a callback each pay only for one check of
//! the maximum level. Subscribers are user code and may panic. A panic on a worker is caught and
//! counted as a panic of the worker. A panic while a timer is armed goes to the caller.

use std::{num::NonZeroU64, sync::atomic::Ordering::Relaxed};

use tourbillon_shards::Due;
use tracing::{
    Level,
    dispatcher::get_default,
    span::{EnteredSpan, Id},
};

use crate::{
    engine::{core::Core, recorder::note::Running, shared::Shared},
    metrics::activity::JobRef,
};

/// Returns whether a subscriber wants warnings.
#[inline]
pub(crate) fn is_on() -> bool {
    tracing::level_enabled!(Level::WARN)
}

/// Returns the number of the span that the calling thread is in, if a subscriber wants warnings.
#[inline]
pub(crate) fn current_span() -> Option<NonZeroU64> {
    if is_on() {
        return entered_span();
    }
    None
}

#[cold]
fn entered_span() -> Option<NonZeroU64> {
    get_default(|subscriber| {
        let span = subscriber.current_span();
        span.id().map(Id::into_non_zero_u64)
    })
}

/// Returns the span in which something is reported: the one that armed the timer, or else the one
/// that the calling thread is in.
pub(crate) fn span_of(origin: Option<NonZeroU64>) -> Option<Id> {
    origin.or_else(current_span).map(Id::from_non_zero_u64)
}

/// The span of a running callback. Dropping it exits the span.
pub(crate) struct Callback<'a> {
    core: &'a Core,
    span: Option<EnteredSpan>,
}

/// Enters the span of a callback that is about to run on the worker of `core`.
#[inline]
pub(crate) fn callback<'a>(core: &'a Core, due: &Due<Core>) -> Callback<'a> {
    let mut span = None;
    // Without a subscriber, do no more.
    if !is_on() {
        return Callback { core, span };
    }
    let origin = due.origin();
    if let Some(origin) = origin {
        core.watchdog.watch.comes_from(origin);
    }
    core.contain(|| {
        let callback = tracing::trace_span!(
            target: "tourbillon::timer",
            "tourbillon.callback",
            worker = core.index,
            callback = due.type_name().get(),
            lateness_us = lateness_us(due),
        );
        // A span that no subscriber wants is neither entered nor exited.
        if callback.is_disabled() {
            return;
        }
        // Not a child: the span that armed the timer may have been closed since.
        callback.follows_from(origin.map(Id::from_non_zero_u64));
        span = Some(callback.entered());
    });
    Callback { core, span }
}

/// Returns how long ago the deadline was, in µs, or zero if the timer was cancelled meanwhile.
fn lateness_us(due: &Due<Core>) -> u64 {
    let now = due.home().owner().now();
    due.deadline()
        .map_or(0, |deadline| now.saturating_sub(deadline) / 1_000)
}

impl Drop for Callback<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            self.core.contain(|| drop(span));
        }
    }
}

/// Emits the event that the runtime runs, once. It waits for a subscriber that wants it, since a
/// program mostly sets one after it has built the runtime: that is what `main` does in
/// `#[tourbillon::main]`.
#[inline]
pub(crate) fn running(core: &Core, shared: &Shared) {
    if !shared.is_announced.load(Relaxed) && tracing::level_enabled!(Level::INFO) {
        announce(core, shared);
    }
}

#[cold]
fn announce(core: &Core, shared: &Shared) {
    core.contain(|| {
        let is_wanted = tracing::enabled!(target: "tourbillon::runtime", Level::INFO);
        if is_wanted && !shared.is_announced.swap(true, Relaxed) {
            tracing::info!(
                target: "tourbillon::runtime",
                name = shared.config.name,
                workers = shared.recorders.len(),
                version = env!("CARGO_PKG_VERSION"),
                "Tourbillon runs"
            );
        }
    });
}

/// What a rescue took over from a stuck worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rescue {
    /// The number of the stuck worker.
    pub(crate) from: usize,
    pub(crate) timers: usize,
    pub(crate) tasks: usize,
}

/// Emits the event of a rescue by the worker of `core`.
pub(crate) fn rescue(core: &Core, rescue: Rescue) {
    core.contain(|| {
        tracing::debug!(
            target: "tourbillon::rescue",
            worker = core.index,
            from = rescue.from,
            timers = rescue.timers,
            tasks = rescue.tasks,
            "took over jobs of a stuck worker"
        );
    });
}

/// Emits the event of a timer that runs very late, at `now`.
pub(crate) fn late(timer: &Running, now: u64) {
    let job = timer.job.map(JobRef::name);
    tracing::warn!(
        target: "tourbillon::late",
        parent: span_of(timer.origin),
        worker = timer.home,
        job = job.map(|job| job.name),
        spawned = job.and_then(|job| job.spawned).map(tracing::field::display),
        late_ms = now.saturating_sub(timer.deadline) / 1_000_000,
        "a timer was late"
    );
}
