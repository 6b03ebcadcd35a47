//! Jobs that keep their worker for too long, and who finds them.
//!
//! A worker [publishes](Watch::begin) the number and the name of each job that it begins, and reads no
//! clock for it. Time is told by who looks: a peer that [looks](look) at the worker twice, and sees the
//! same number; or, where nobody looks, the worker itself, which finds on [its way
//! back](was_away) to its loop that it was away for long.
//!
//! | word | written by |
//! |---|---|
//! | `begun`, `name`, `spawned`, `named` | the worker |
//! | `seen` | who looks, under the lock |
//!
//! The name is of the job whose number is in `named`, and in `begun` as well once the name has been read:
//! a sequence lock of two numbers. Who reads `named` sees that job's name or a later one's (release,
//! acquire); if it was a later one's, its number is in `begun` by then (the two fences). All that is
//! pointed to is static: what is read of a job that has ended meanwhile is stale, and never freed.

use crate::engine::{
    core::Core,
    watchdog::{
        stall::Stall,
        watch::{InLoop, OFF},
    },
};
#[cfg(feature = "cron")]
use tourbillon_shards::TypeName;

/// Looks at a worker that is awake, and answers what there is to [report](report) if it has been at its job
/// for too long. To be called now and then, by any thread but the worker's.
///
/// `now` is what [`Clock::real`](crate::clock::runtime_clock::Clock::real) says, in ns. A job counts from the first look
/// that sees it.
pub(crate) fn look(core: &Core, now: u64) -> Option<Stall> {
    let threshold = core.shared.config.stall_threshold;
    if threshold == OFF {
        return None;
    }
    let stall = core.watchdog.watch.look(core.index, threshold, now);
    stall.map(|stall| Stall {
        is_helper: core.is_helper,
        ..stall
    })
}

/// The worker is back in its loop: reports what kept it, if that took too long and no peer has.
pub(crate) fn was_away(core: &Core, last: &mut InLoop, jobs: u64) {
    let threshold = core.shared.config.stall_threshold;
    let now = InLoop::at(core.shared.clock.real(), jobs);
    let from = std::mem::replace(last, now);
    if let Some(mut stall) = core.watchdog.watch.away(core.index, threshold, from, now) {
        stall.is_helper = core.is_helper;
        report(core, &stall);
    }
}

/// For a job that runs a callback whose type it does not know: `name` is.
#[cfg(feature = "cron")]
pub(crate) fn this_job_is(name: &'static TypeName) {
    crate::engine::local::with_local(|local| {
        if let Some(local) = local {
            local.shard.owner().watchdog.watch.rename(name);
        }
    });
}

/// Tells whoever wants to know: the hook is foreign code.
#[cold]
pub(crate) fn report(core: &Core, stall: &Stall) {
    // As the worker's that stalled, whoever counts.
    core.recorder.foreign().stalls.add(1);
    let clock = &core.shared.clock;
    let at = clock.instant(clock.now());
    core.shared.stalls.rcu(|stalls| stalls.with(stall, at));
    #[cfg(feature = "tracing")]
    core.contain(|| trace(stall));
    if let Some(hook) = &core.shared.config.on_stall {
        core.contain(|| hook(stall));
    }
}

#[cfg(feature = "tracing")]
fn trace(stall: &Stall) {
    tracing::warn!(
        target: "tourbillon::stall",
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
