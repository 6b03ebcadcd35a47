//! Which shard a timer with options goes to, for each clock.

use std::sync::Arc;

use tourbillon_shards::Shard;

use crate::{
    engine::{
        context::placement::{Choice, HomeError, with_home},
        core::Core,
        handle::Handle,
    },
    error::ArmError,
    timer::clock::TimerClock,
};

/// Returns the shard for a timer of clock `C`, in the given or the current runtime: the shard of
/// the clock, or that of a worker.
pub(crate) fn home<C: TimerClock>(
    handle: Option<&Handle>,
    worker: Option<usize>,
) -> Result<Arc<Shard<Core>>, ArmError> {
    if let Some(clock) = C::OTHER {
        let current;
        let handle = match handle {
            Some(handle) => handle,
            None => {
                current = Handle::try_current().map_err(|_| HomeError::NoRuntime)?;
                &current
            }
        };
        // All workers serve the shard of a clock, so there is none to choose.
        let shared = handle.shared();
        let clock = shared
            .clocks
            .home(shared, clock)
            .ok_or(ArmError::Shutdown)?;
        return Ok(clock.shard.clone());
    }
    // Find the runtime, and a shard: on a worker its own. A remote thread takes the workers in
    // turn. It does not arm a run of timers on one worker, as with timers without options.
    let home = match handle {
        Some(handle) => handle.with_home(Choice::NotAwake, Arc::clone)?,
        None => with_home(Choice::NotAwake, Arc::clone)?,
    };
    let Some(worker) = worker else {
        return Ok(home);
    };
    // The caller wants a certain worker of that runtime.
    let workers = home.owner().shared.workers();
    match workers.get(worker) {
        Some(home) => Ok(home.clone()),
        // After a shutdown the list is empty. That is no mistake of the caller.
        None if workers.is_empty() => Err(ArmError::Shutdown),
        None => Err(ArmError::NoSuchWorker {
            worker,
            workers: workers.len(),
        }),
    }
}
