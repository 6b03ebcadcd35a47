//! Which worker's shard a new timer, socket or task goes to.

use std::sync::Arc;

use crate::engine::{
    context::{
        entered::{any_entered, with_entered},
        spread,
    },
    core::WorkerShard,
    local::{Local, with_local},
    shared::{Shared, Workers},
};

/// How a thread that is no worker of the runtime chooses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The next in turn. For tasks, which any worker runs: of their home they have no more than a
    /// place in its books.
    InTurn,
    /// The next in turn, unless that is awake and the one after it is not. For what its home alone
    /// looks at: who sleeps is not stuck in a callback, and who is awake may be.
    NotAwake,
    /// As `NotAwake`, for timers: a thread arms [a run](spread::stay) of them on one worker, and
    /// then wakes that worker to read its inbox.
    Stay,
}

impl Choice {
    #[inline]
    pub(crate) fn among(self, workers: &Workers) -> Option<&Arc<WorkerShard>> {
        let of = workers.len();
        let at = match self {
            // A runtime that has been shut down has none.
            Choice::Stay => spread::stay(of, |at| workers.get(at).into_iter().for_each(read_inbox)),
            Choice::InTurn | Choice::NotAwake => spread::spread().checked_rem(of)?,
        };
        let first = workers.get(at)?;
        if self == Choice::InTurn || !first.parker().is_awake() {
            return Some(first);
        }
        // One look further and no more: it is a hint, and each costs a line of another core's cache.
        let second = workers.get(at + 1).unwrap_or(&workers[0]);
        let second_is_awake = second.parker().is_awake();
        Some(if second_is_awake { first } else { second })
    }
}

/// Wakes the worker if something stands in its inbox: it reads the nodes while they are in a cache,
/// and not when its next timer is due.
#[cold]
fn read_inbox(worker: &Arc<WorkerShard>) {
    if worker.has_news() {
        worker.wake();
    }
}

/// Why there is no shard for a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HomeError {
    NoRuntime,
    Shutdown,
}

/// Runs `f` with the shard where this thread's timers, sockets and tasks go: its own if it is a
/// worker, otherwise one of the entered runtime's, as `choice` says.
#[inline]
pub(crate) fn with_home<R>(
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    if !any_entered() {
        return with_local(|local| {
            let local = local.ok_or(HomeError::NoRuntime)?;
            match local.home() {
                Some(home) => Ok(f(home)),
                None => with_any_home(local.shared(), choice, f),
            }
        });
    }
    with_entered_home(choice, f)
}

/// The same in the runtime that was entered last, or, at the end of the thread, in its worker's.
#[cold]
fn with_entered_home<R>(
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    // Found before `f` is called, which may enter another.
    let found = with_entered(|shared| {
        let own = with_local(|local| local.filter(|local| local.is_of(shared))?.home().cloned());
        own.ok_or_else(|| shared.workers.load())
    });
    match found {
        Some(Ok(home)) => Ok(f(&home)),
        Some(Err(workers)) => choice.among(&workers).map(f).ok_or(HomeError::Shutdown),
        None => Err(HomeError::NoRuntime),
    }
}

/// Runs `f` with the shard of a worker of `shared`, as `choice` says.
pub(crate) fn with_any_home<R>(
    shared: &Shared,
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    let workers = shared.workers.load();
    choice.among(&workers).map(f).ok_or(HomeError::Shutdown)
}

/// Runs `f` with the shard of a worker of `shared`: of the calling thread, if it is one, otherwise of
/// any, as `choice` says.
#[inline]
pub(crate) fn with_home_of<R>(
    shared: &Shared,
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    with_local(|local| {
        let own = local.filter(|local| local.is_of(shared));
        match own.and_then(Local::home) {
            Some(home) => Ok(f(home)),
            None => with_any_home(shared, choice, f),
        }
    })
}
