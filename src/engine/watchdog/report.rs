//! Finds and reports jobs that keep their worker for too long.
//!
//! A worker [publishes](crate::engine::watchdog::watch::Watch::begin) the number and the name of
//! each job that it begins. It reads no clock for this. The time is measured by a peer that
//! [looks](look) at the worker twice and sees one number both times. If no peer looks, the worker
//! itself notices, when it [comes back](was_away) to its loop, that it was away for long.
//!
//! | word | written by |
//! |---|---|
//! | `begun`, `name`, `spawned`, `named` | the worker |
//! | `seen` | the peer that looks, under the lock |
//!
//! The two numbers are a sequence lock. A name belongs to a job if `named` has the job's number
//! before the name is read, and `begun` still has it afterwards. A reader of `named` sees the name
//! of that job or of a later one (release, acquire). If it was a later one, the reader then sees
//! the later number in `begun` (the two fences). All pointers are to static data. So the name of a
//! job that has ended meanwhile may be stale, but never dangles.

#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace::span_of;
use crate::{
    engine::{
        core::Core,
        recorder::words,
        watchdog::{
            stall::Stall,
            watch::{InLoop, OFF},
        },
    },
    util::{nanos::nanos, probe::probe},
};
use tourbillon_shards::TypeName;

/// Checks a worker that is awake. Returns the stall to [report] if its job has run for too
/// long.
///
/// Any thread except the worker's own may call this, now and then. `now` is the time of
/// [`Clock::real`](crate::clock::runtime_clock::Clock::real), in ns. A job is timed from the first
/// look that sees it.
pub(crate) fn look(core: &Core, now: u64) -> Option<Stall> {
    let threshold = core.shared.config.stall_threshold;
    if threshold == OFF {
        return None;
    }
    let stall = core.watchdog.watch.look(core.index, threshold, now);
    // The watch does not know what kind of thread it belongs to.
    stall.map(|stall| Stall {
        is_helper: core.is_helper,
        ..stall
    })
}

/// Notes that the worker is back in its loop. If it was away for too long, and no peer has reported
/// that, this reports it.
pub(crate) fn was_away(core: &Core, last: &mut InLoop, jobs: u64) {
    let threshold = core.shared.config.stall_threshold;
    let now = InLoop::at(core.shared.clock.real(), jobs);
    // Each stretch of time counts once: the next report begins here.
    let from = std::mem::replace(last, now);
    if let Some(mut stall) = core.watchdog.watch.away(core.index, threshold, from, now) {
        stall.is_helper = core.is_helper;
        report(core, &stall);
    }
}

/// Gives the running job of this worker the name of type `F`, until the job ends.
///
/// The reports of a runtime name a job by the type of its callback or future. A library that runs
/// callbacks of its users inside of its own calls this first, so that reports name the user's
/// callback: [stalls](crate::runtime::Stall), the workers'
/// [current jobs](crate::metrics::WorkerMetrics::job), and the flight recorder.
///
/// It costs one store. On a thread that is no worker it does nothing.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Runtime, Timer, runtime};
///
/// /// Runs `f` after a minute, and then counts it.
/// fn run_counted<F: FnOnce() + Send + 'static>(runtime: &Runtime, f: F) -> Timer {
///     runtime.handle().after(Duration::from_secs(60), move || {
///         runtime::name_job::<F>();
///         f();
///         println!("one more");
///     })
/// }
/// # run_counted(&Runtime::new().unwrap(), || ()).cancel();
/// ```
pub fn name_job<F: ?Sized>() {
    crate::engine::local::with_local(|local| {
        if let Some(local) = local {
            let watch = &local.shard.owner().watchdog.watch;
            watch.rename(TypeName::of::<F>());
        }
    });
}

/// Counts, records and traces the stall, and calls the user's hook.
#[cold]
pub(crate) fn report(core: &Core, stall: &Stall) {
    // Counted for the worker that stalled, whichever thread reports it.
    core.recorder.foreign().stalls.add(1);
    let (name, length) = (stall.job.as_ptr(), stall.job.len());
    probe!(
        stall,
        stall.worker,
        nanos(stall.elapsed),
        stall.is_running,
        name,
        length
    );
    let clock = &core.shared.clock;
    let at = clock.instant(clock.now());
    // Readers keep the old list while they use it. Two reports at once both get in.
    core.shared.stalls.rcu(|stalls| stalls.with(stall, at));
    record(core, stall);
    #[cfg(feature = "tracing")]
    core.contain(|| trace(stall));
    // The hook comes last: it is user code, and what it reads about the runtime includes this
    // stall.
    if let Some(hook) = &core.shared.config.on_stall {
        core.contain(|| hook(stall));
    }
}

/// Records the stall, and keeps what happened before it.
fn record(core: &Core, stall: &Stall) {
    if core.track.notes(nanos(stall.elapsed)) && !core.shared.clock.was_paused() {
        let elapsed = nanos(stall.elapsed);
        let now = core.shared.clock.real();
        let stalled = words::stalled(now, stall.worker, stall.is_running, elapsed);
        // Right if the job still runs. Otherwise the turn that it was in has its name.
        let job = core.watchdog.watch.job_ref().map(words::job);
        core.shared.record([stalled].into_iter().chain(job));
        core.shared.keep_copy();
    }
}

#[cfg(feature = "tracing")]
fn trace(stall: &Stall) {
    tracing::warn!(
        target: "tourbillon::stall",
        parent: span_of(stall.origin),
        worker = stall.worker,
        is_helper = stall.is_helper,
        job = stall.job,
        spawned = stall.spawned.map(tracing::field::display),
        elapsed_ms = u64::try_from(stall.elapsed.as_millis()).unwrap_or(u64::MAX),
        is_running = stall.is_running,
        jobs = stall.jobs,
        "a worker is kept from its timers and sockets"
    );
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
