//! Finds and reports jobs that keep their worker for too long.
//!
//! A worker [publishes](crate::engine::watchdog::watch::Watch::begin) the number and the name of
//! each job that it begins. It reads no clock for this. The time is measured by a peer that
//! [looks](look) at the worker twice and sees one number both times. If no peer looks, the worker
//! itself notices, when it [comes back](was_away) to its loop, that it was away for long.
//!
//! | word | written by |
//! |---|---|
//! | `begun`, `name`, `spawned`, `named`, and those of label, span and group | the worker |
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
        watchdog::{seen::InLoop, stall::Stall, watch::OFF},
    },
    sys::sync::atomic::Ordering,
    util::{nanos::nanos, probe::probe},
};
use tourbillon_shards::TypeName;

/// For how long the workers time each job after a stall of which nobody knows the job, in ns. To
/// read the clock for each job takes some 20 ns.
const TIMED: u64 = 60_000_000_000;

/// Looks at a worker that is awake. Returns whether the caller is to
/// [report what was found](report_found): a job that runs for too long, or the end of one.
///
/// Any thread except the worker's own may call this, now and then. `now` is the time of
/// [`Clock::real`](crate::clock::runtime_clock::Clock::real), in ns. A job is timed from the first
/// look that sees it.
pub(crate) fn look(core: &Core, now: u64) -> bool {
    let threshold = core.shared.config.stall_threshold;
    let found = threshold != OFF && core.watchdog.watch.look(core.index, threshold, now);
    if found {
        // The end of the job is known exactly if the worker reads the clock before its next one.
        core.track.time_jobs(now);
    }
    found
}

/// Reports what a [look](look) at the worker has found.
pub(crate) fn report_found(core: &Core) {
    let watch = &core.watchdog.watch;
    let Some(mut stall) = watch.begin_report() else {
        return;
    };
    report(core, &mut stall);
    if stall.is_running {
        if let Some(mut over) = watch.end_report(&stall) {
            report(core, &mut over);
        }
    }
}

/// Notes that the worker has run `jobs` jobs and is in none. If they took too long, or one of them
/// was reported while it ran, this reports it.
#[inline]
pub(crate) fn was_away(core: &Core, last: &mut InLoop, jobs: u64) {
    was_away_at(core, last, InLoop::at(core.shared.clock.real(), jobs));
}

#[inline]
fn was_away_at(core: &Core, last: &mut InLoop, now: InLoop) {
    let threshold = core.shared.config.stall_threshold;
    // Each stretch of time counts once: the next report begins here.
    let from = std::mem::replace(last, now);
    if let Some(mut stall) = core.watchdog.watch.away(core.index, threshold, from, now) {
        if stall.what.is_none() {
            let until = now.at.saturating_add(TIMED);
            core.shared.each_core(|core| core.track.time_jobs(until));
        }
        report(core, &mut stall);
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

/// Counts, records and traces the stall, and calls the user's hook. A stall that is new gets a
/// number.
#[cold]
fn report(core: &Core, stall: &mut Stall) {
    // The watch does not know what kind of thread it belongs to.
    stall.is_helper = core.is_helper;
    stall.thread = core.thread.load(Ordering::Relaxed);
    let clock = &core.shared.clock;
    let at = clock.instant(clock.now());
    let is_new = stall.number == 0;
    if is_new {
        // Counted for the worker that stalled, whichever thread reports it.
        core.recorder.foreign().stalls.add(1);
    }
    // Readers keep the old list while they use it. Two reports at once both get in.
    core.shared.stalls.rcu(|stalls| {
        if is_new {
            stall.number = stalls.next();
        }
        stall.stacks = stalls.stacks(stall.number);
        stalls.with(stall, at)
    });
    let name = stall.job.map_or("", |job| job.name);
    probe!(
        stall,
        stall.worker,
        nanos(stall.elapsed),
        stall.is_running,
        name.as_ptr(),
        name.len()
    );
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
    let elapsed = nanos(stall.elapsed);
    if core.track.notes(elapsed) && !core.shared.clock.was_paused() {
        let now = core.shared.clock.real();
        let stalled = words::stalled(now, stall.worker, stall.is_running, elapsed);
        let numbered = words::numbered(stall.number);
        let job = words::named(stall.what);
        let details = [numbered].into_iter().chain(job);
        core.shared.record([stalled].into_iter().chain(details));
        core.shared.keep_copy();
    }
}

#[cfg(feature = "tracing")]
pub(crate) fn trace(stall: &Stall) {
    tracing::warn!(
        target: "tourbillon::stall",
        parent: span_of(stall.origin),
        worker = stall.worker,
        is_helper = stall.is_helper,
        number = stall.number,
        label = stall.job.and_then(|job| job.label),
        group = stall.job.and_then(|job| job.group),
        job = stall.job.map(|job| job.name),
        spawned = stall.job.and_then(|job| job.spawned).map(tracing::field::display),
        elapsed_ms = u64::try_from(stall.elapsed.as_millis()).unwrap_or(u64::MAX),
        is_running = stall.is_running,
        jobs = stall.jobs,
        stack = stall.stacks.last().map(|stack| &**stack),
        "a worker is kept from its timers and sockets"
    );
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
