//! Decides which worker's shard a new timer, socket or task goes to.
//!
//! A worker uses its own shard. A remote thread, which is no worker of the runtime, chooses a
//! worker by its [`Choice`].

use std::sync::Arc;

use crate::{
    engine::{
        context::{
            entered::{any_entered, with_entered},
            spread,
        },
        core::WorkerShard,
        local::{Local, with_local, with_local_of},
        shared::{Shared, Workers},
    },
    util::contained::contained,
};

/// How a remote thread chooses a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The next worker in turn. This is for tasks: any worker may run them, and their owning worker
    /// only has them in its registry.
    InTurn,
    /// The next worker in turn, or the one after it if only the first is awake. This is for timers
    /// and sockets, which only their owning worker serves: a worker that is awake may be stuck in a
    /// callback, a worker that sleeps is not.
    NotAwake,
    /// Like `NotAwake`, for timers in bulk: a thread arms [a run](spread::stay) of timers on one
    /// worker, and then wakes that worker to read its inbox.
    Stay,
}

impl Choice {
    /// Returns one of the first `of` workers, or `None` if there are none because the runtime has
    /// been shut down.
    #[inline]
    pub(crate) fn among(self, workers: &Workers, of: usize) -> Option<&Arc<WorkerShard>> {
        let at = match self {
            // After a shutdown there are no workers.
            Choice::Stay => spread::stay(of, |at| workers.get(at).into_iter().for_each(read_inbox)),
            Choice::InTurn | Choice::NotAwake => spread::spread().checked_rem(of)?,
        };
        let first = workers.get(at)?;
        // A worker that sleeps is not stuck, and serves its timers in time.
        if self == Choice::InTurn || !first.parker().is_awake() {
            return Some(first);
        }
        // Look at one more worker only. The answer is a hint, and each look loads a cache line of
        // another core.
        let second = workers[..of].get(at + 1).unwrap_or(&workers[0]);
        let second_is_awake = second.parker().is_awake();
        Some(if second_is_awake { first } else { second })
    }
}

/// Wakes the worker if its inbox is not empty, so that it reads the nodes while they are in a
/// cache, and not when its next timer is due.
#[cold]
fn read_inbox(worker: &Arc<WorkerShard>) {
    if worker.has_updates() {
        worker.wake();
    }
}

/// Why there is no shard for a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HomeError {
    NoRuntime,
    Shutdown,
}

/// Runs `f` with the shard for this thread's timers, sockets and tasks.
///
/// A worker uses its own shard. Any other thread uses a shard of the entered runtime, as `choice`
/// says.
#[inline]
pub(crate) fn with_home<R>(
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    if !any_entered() {
        return with_local(|local| {
            let Some(local) = local else {
                return fail(f, HomeError::NoRuntime);
            };
            // A helper is in the runtime, but owns no timers and sockets.
            match local.home() {
                Some(home) => Ok(f(home)),
                None => with_any_home(local.shared(), choice, f),
            }
        });
    }
    with_entered_home(choice, f)
}

/// Runs `f` with a shard of the runtime that was entered last. At the end of a thread, when that is
/// no longer known, it fails.
#[cold]
fn with_entered_home<R>(
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    // Find the shard before `f` is called: `f` may enter another runtime.
    let found = with_entered(|shared| {
        // The runtime that was entered last counts. A worker that entered its own keeps its own
        // shard.
        let own = with_local_of(shared, |local| local?.home().cloned());
        own.ok_or_else(|| {
            let workers = shared.workers.load();
            let active = shared.active_workers(workers.len());
            (workers, active)
        })
    });
    match found {
        Some(Ok(home)) => Ok(f(&home)),
        Some(Err((workers, active))) => with_one_of(&workers, active, choice, f),
        None => fail(f, HomeError::NoRuntime),
    }
}

/// Runs `f` with the shard of a worker of `shared`, as `choice` says.
pub(crate) fn with_any_home<R>(
    shared: &Shared,
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    let workers = shared.workers.load();
    with_one_of(&workers, shared.active_workers(workers.len()), choice, f)
}

/// Runs `f` with the shard of one of the first `of` workers, as `choice` says.
fn with_one_of<R>(
    workers: &Workers,
    of: usize,
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    match choice.among(workers, of) {
        Some(home) => Ok(f(home)),
        None => fail(f, HomeError::Shutdown),
    }
}

/// Drops `f`, which may hold a user's callback, and returns the error. A panic of the callback's
/// destructor does not reach the caller.
#[cold]
fn fail<F, R>(f: F, error: HomeError) -> Result<R, HomeError> {
    contained(|| drop(f));
    Err(error)
}

/// Runs `f` with a shard of `shared`: the calling thread's own if it is a worker of that runtime,
/// otherwise one that `choice` selects.
#[inline]
pub(crate) fn with_home_of<R>(
    shared: &Shared,
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    with_local_of(shared, |local| match local.and_then(Local::home) {
        Some(home) => Ok(f(home)),
        None => with_any_home(shared, choice, f),
    })
}
