//! What the simulation holds a runtime to: no work waits for a worker that sleeps.
//!
//! The simulation lists the neglected work whenever no thread can run. At such a moment a worker
//! sleeps, or the job that it runs blocks it.

use std::sync::{Arc, Weak};

use tourbillon_shards::NEVER;
use tourbillon_sync::sim::{self, Neglected};

use crate::{
    engine::{
        core::{Core, WorkerShard},
        shared::Shared,
    },
    util::nanos::nanos,
};

/// Has the simulation watch over a runtime.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    sim::watch(Arc::new(move || {
        let shared = Weak::upgrade(&shared);
        shared.map_or_else(Vec::new, |shared| neglected(&shared))
    }));
}

/// Work that must not wait at all.
fn at_once(what: String, blame: String) -> Neglected {
    Neglected {
        what,
        blame,
        allowed: 0,
        job: 0,
    }
}

/// Lists the work that waits while a worker sleeps. It reads atomics alone.
fn neglected(shared: &Shared) -> Vec<Option<Neglected>> {
    let workers = shared.workers.load();
    let sleeper = |retired: bool| {
        let is_it = |worker: &Core| worker.duty.is_retired() == retired;
        let mut sleeps = workers.iter().map(|it| is_parked(it) && is_it(it.owner()));
        sleeps.position(|it| it)
    };
    // No thread wakes a retired worker for work. If a worker is stuck, an alarm calls it.
    let (sleeper, at_call) = match (sleeper(false), sleeper(true)) {
        _ if shared.is_stopping() => return Vec::new(),
        (Some(active), _) => (active, 0),
        // It leaves the first look at a worker at that.
        (None, Some(retired)) => match shared.is_watched(workers.len()) {
            true => (retired, 2 * latency(shared, workers.len())),
            false => (retired, u64::MAX),
        },
        (None, None) => return Vec::new(),
    };
    // The other workers are blocked in jobs.
    let blocked = workers.iter().filter(|worker| !is_parked(worker));
    let job = match at_call {
        0 => 0,
        _ => blocked.map(|it| it.owner().watchdog.watch.begun()).sum(),
    };
    let waits = |what, blame| Neglected {
        what,
        blame,
        allowed: at_call,
        job,
    };
    let mut all = Vec::new();
    // 1. Each push into the injector or into the queue of a group wakes a worker, unless one
    //    searches. A searcher takes the job, or looks once more after it has left the count.
    let injected = shared.queues.len() + shared.task_groups.queued();
    all.push((injected > 0).then(|| {
        let blame = format!("the thread that pushed had to wake worker {sleeper}");
        waits(format!("one of {injected} jobs in the injector"), blame)
    }));
    // 2. A searcher runs until it has left the count. As long as it is counted, no worker is woken.
    let searching = shared.queues.searchers.searching();
    all.push((searching > 0).then(|| {
        let blame = format!("{searching} workers count as searchers");
        at_once("all work that is pushed".into(), blame)
    }));
    for worker in workers.iter() {
        of_worker(shared, worker, workers.len(), (sleeper, at_call), &mut all);
    }
    // 7. No alarm calls a peer if a helper is stuck, so its jobs must not wait.
    for helper in &shared.helpers.known.load().list {
        let queued = helper.owner().stealer.len();
        all.push((queued > 0).then(|| {
            let blame = format!("a thread had to wake worker {sleeper}");
            waits(format!("one of {queued} jobs of a helper"), blame)
        }));
    }
    all
}

/// Returns whether a worker sleeps, and no thread has claimed its wake-up.
fn is_parked(worker: &WorkerShard) -> bool {
    worker.parker().parked_until().is_some()
}

/// Lists the work of one worker that waits while worker `sleeper` sleeps, which comes within
/// `at_call` ns.
fn of_worker(
    shared: &Shared,
    worker: &WorkerShard,
    workers: usize,
    (sleeper, at_call): (usize, u64),
    all: &mut Vec<Option<Neglected>>,
) {
    let core: &Core = worker.owner();
    let (index, is_parked) = (core.index, is_parked(worker));
    let is_in_place = core.watchdog.is_in_place();
    // A worker that leaves its peers asleep relies on its alarm.
    let is_watched = shared.is_watched(workers);
    let is_excused = is_watched && !is_parked && !is_in_place;
    let allowed = if is_excused {
        latency(shared, workers).max(at_call)
    } else {
        at_call
    };
    let job = core.watchdog.watch.begun();
    let state = match (is_parked, is_in_place) {
        (true, _) => "sleeps",
        (_, true) => "is in `block_in_place`",
        _ => "is blocked in a job",
    };
    // 3. Each push into a deque wakes a worker, unless one searches. A batch that will be over
    //    soon wakes none: then the alarm calls a peer within the latency, which wakes others.
    let queued = core.stealer.len();
    all.push((queued > 0).then(|| Neglected {
        what: format!("one of {queued} jobs of worker {index}, which {state},"),
        blame: format!("the thread that pushed, stole or rescued had to wake worker {sleeper}"),
        allowed,
        job,
    }));
    // 4. Only a rescue empties the slot of a worker that is blocked. `block_in_place` empties it
    //    first.
    let must_be_empty = is_parked || is_in_place || is_watched;
    all.push((!core.next.is_empty() && must_be_empty).then(|| Neglected {
        what: format!("the next task of worker {index}, which {state},"),
        blame: format!("the worker had to give it away, or worker {sleeper} to rescue it"),
        // The slot may be filled again while the job runs.
        allowed: allowed.saturating_mul(2),
        job,
    }));
    // 5. A worker that sleeps is woken for its pinned tasks. One that is awake has its alarm set.
    //    A worker that leans sleeps past its deadlines only if one of its mates does not.
    let next = worker.next_deadline();
    let overslept = |next| {
        worker
            .parker()
            .parked_until()
            .is_some_and(|until| until > next)
    };
    let leans = shared
        .group(index)
        .is_some_and(|(group, place)| group.leaning.leans(place));
    all.push(
        (leans && overslept(next) && !shared.is_covered(index, next)).then(|| {
            let blame =
                "a mate had to wake up for it, or the thread that armed it to wake it".into();
            at_once(format!("a timer of worker {index}, which leans,"), blame)
        }),
    );
    all.push((is_parked && core.pinned.has_remote()).then(|| {
        let blame = format!("the thread that pushed had to wake worker {index}");
        at_once("a pinned task".into(), blame)
    }));
    // 6. A worker follows the limit before it sleeps, or is woken for it.
    let rests = is_parked && core.duty.is_retired();
    all.push((rests && !shared.retires(core)).then(|| {
        let blame = "the thread that set the limit had to wake it".into();
        at_once(
            format!("all work that worker {index}, which takes part, could do"),
            blame,
        )
    }));
    all.push((is_excused && worker.alarm() == NEVER).then(|| {
        let blame = "its alarm is not set".into();
        at_once(format!("the work of worker {index}, which {state},"), blame)
    }));
}

/// Returns within how many ns a peer comes to a worker that is blocked, while no thread can run.
fn latency(shared: &Shared, workers: usize) -> u64 {
    let rarer = shared.rescuers.rarer(shared.awake());
    // In a crowd the alarms that one worker does not answer are put off one after the other.
    let turns = workers.div_ceil(4) as u64;
    nanos(shared.config.rescue_latency) * u64::from(rarer) * turns
}
