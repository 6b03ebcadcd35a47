//! Which shard a timer with options goes to, for each clock.

use std::sync::Arc;

use tourbillon_shards::{Names, Shard};

use crate::{
    clock::other::OtherClock,
    engine::{
        clocks::owner::ClockCore,
        context::placement::{Choice, HomeError, with_home},
        core::Core,
        handle::Handle,
        shared::Shared,
    },
    error::ArmError,
    timer::clock::{Boot, Monotonic, TimerClock, Wall},
};

/// A clock, with the shards that hold its timers.
pub trait Homes: TimerClock {
    /// Returns the shard for a timer: a worker's shard, or the shard of the clock.
    fn home(
        handle: Option<&Handle>,
        worker: Option<usize>,
    ) -> Result<Arc<Shard<Self::Owner>>, ArmError>;

    /// Returns the table of the names of such timers.
    fn names(shared: &Shared) -> &Arc<Names<Self::Owner>>;
}

impl Homes for Monotonic {
    fn home(handle: Option<&Handle>, worker: Option<usize>) -> Result<Arc<Shard<Core>>, ArmError> {
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

    fn names(shared: &Shared) -> &Arc<Names<Core>> {
        &shared.names
    }
}

/// Returns the shard of a clock, in the given or the current runtime.
fn clock_home(
    kind: OtherClock,
    handle: Option<&Handle>,
) -> Result<Arc<Shard<ClockCore>>, ArmError> {
    let current;
    let handle = match handle {
        Some(handle) => handle,
        None => {
            current = Handle::try_current().map_err(|_| HomeError::NoRuntime)?;
            &current
        }
    };
    // All workers serve these shards, so there is none to choose.
    let shared = handle.shared();
    let shard = shared.clocks.home(shared, kind);
    shard.ok_or(ArmError::Shutdown)
}

impl Homes for Wall {
    fn home(handle: Option<&Handle>, _: Option<usize>) -> Result<Arc<Shard<ClockCore>>, ArmError> {
        clock_home(OtherClock::Wall, handle)
    }

    fn names(shared: &Shared) -> &Arc<Names<ClockCore>> {
        &shared.clocks.names
    }
}

impl Homes for Boot {
    fn home(handle: Option<&Handle>, _: Option<usize>) -> Result<Arc<Shard<ClockCore>>, ArmError> {
        clock_home(OtherClock::Boot, handle)
    }

    fn names(shared: &Shared) -> &Arc<Names<ClockCore>> {
        &shared.clocks.names
    }
}
