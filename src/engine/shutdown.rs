//! The end of a runtime's workers, and of all that waits there.
//!
//! Each worker that has left its loop closes *all* shards, so that none has to wait for one that is
//! stuck, and puts their timers into one queue, in parts that all workers take from: what there is
//! to be dropped and told is dropped and told in parallel. The last to leave then ends what only
//! comes to light when nobody runs any more: sockets' waiters, tasks, and what these cancel.

use std::{sync::Arc, time::Duration};

use tourbillon_shards::{Notice, Orphans, Owner};

use crate::{
    engine::{
        context::entered,
        core::Core,
        job::{Ending, Job, steal},
        local::Local,
        shared::Shared,
        telemetry::snapshot,
    },
    sys::sync::atomic::Ordering,
    task::local::end_pinned,
    util::{contained::contained, lock::lock},
};

/// How many timers a worker ends before it looks for other work.
const PART: usize = 256;

/// For how long a worker that has nothing left to do waits for those that have.
const MOMENT: Duration = Duration::from_millis(1);

/// Ends what the runtime has, together with the other workers. For a worker that has left its loop.
pub(crate) fn end(local: &Local) {
    let core = local.shard.owner();
    let shared = &core.shared;
    close_shards(shared);
    let mut tasks = Vec::new();
    loop {
        // Before another part is begun: callbacks that are told stand in the deque one by one, where
        // others take them while one of them takes long.
        let own = local.next_for_any();
        let own = own.or_else(|| steal(|| shared.injector.steal()));
        let job = own.or_else(|| {
            let mut part = steal(|| shared.orphans.steal())?;
            end_part(core, &mut *part, &|job| local.deque.push(job));
            local.next_for_any()
        });
        match job.or_else(|| steal_from(shared)) {
            // Tasks are dropped when nobody runs any more.
            Some(Job::Task(task)) => tasks.push(task),
            Some(job) => core.contain(|| job.end()),
            None if !shared.orphans.is_empty() => {}
            None if shared.owes() == 0 => break,
            // Somebody tells a callback, or is about to, and there may be more to tell after that.
            None => crate::sys::sync::thread::sleep(MOMENT),
        }
    }
    for task in tasks {
        local.deque.push(Job::Task(task));
    }
    if !core.is_helper {
        // On their own thread. What they spawn and cancel at that, the last worker ends.
        end_pinned(core);
    }
    local.release();
}

/// A job of another worker.
fn steal_from(shared: &Shared) -> Option<Job> {
    shared.find_deque(0, |owner| steal(|| owner.stealer.steal()))
}

fn end_part(core: &Core, part: &mut dyn Ending, told: &dyn Fn(Job)) {
    let mut more = true;
    while more {
        // A destructor that panics keeps no other from being run.
        core.contain(|| {
            while part.end_next(told) {}
            more = false;
        });
    }
}

/// Refuses all timers from now on, and queues those that wait to be ended.
fn close_shards(shared: &Shared) {
    for worker in shared.workers.load().iter() {
        queue(shared, worker.close());
    }
    for clock in shared.clocks().iter() {
        queue(shared, clock.close());
    }
}

fn queue<O: Owner>(shared: &Shared, mut orphans: Orphans<O>)
where
    Job: From<Notice<O>>,
{
    while !orphans.is_empty() {
        shared.orphans.push(Box::new(orphans.split(PART)));
    }
}

/// Called by each worker once, when it has ended its part. The last ends what is left.
pub(crate) fn leave(shared: &Arc<Shared>) {
    let last = {
        let mut running = lock(&shared.running);
        if *running > 1 {
            *running -= 1;
            false
        } else {
            true
        }
    };
    if last {
        entered::with_ending(shared, || end_all(shared));
        *lock(&shared.running) = 0;
        #[cfg(feature = "inspect")]
        shared.tell_end();
    }
    shared.left.notify_all();
    if !last {
        end_for_those_away(shared);
    }
}

/// If all that have not left are in `block_in_place`: ends what they may wait for, tasks and timers and
/// sockets, since nobody else will. Called when a worker has left, when one goes to block, and when the
/// runtime is told to stop.
pub(crate) fn end_for_those_away(shared: &Arc<Shared>) {
    let all_away = {
        let running = lock(&shared.running);
        let away = shared.in_place.load(Ordering::Acquire);
        shared.is_stopping() && *running > 0 && *running == away
    };
    if all_away {
        entered::with_ending(shared, || end_rest(shared));
    }
}

/// Ends what nobody will run any more, on the last worker. Dropping tasks may wake, spawn and arm
/// others; those end likewise.
fn end_all(shared: &Shared) {
    if shared.workers.load().is_empty() {
        return;
    }
    end_rest(shared);
    // Of workers that were never started: the others' are gone.
    for worker in shared.workers.load_full().iter() {
        end_pinned(worker.owner());
    }
    loop {
        drain(shared);
        // Somebody else may have cancelled a timer and be just about to pass on the news: its
        // callback is told on a worker, which we are the last of.
        if shared.owes() == 0 {
            break;
        }
        crate::sys::sync::thread::yield_now();
    }
    shared.drained.store(true, Ordering::Release);
    crate::sys::sync::atomic::fence(Ordering::SeqCst);
    drain(shared);
    shared.quiescence.close();
    // The owners of the shards refer to this, and this to them.
    shared.workers.store(Arc::default());
    snapshot::keep_sweeps(shared);
    shared.clocks.store(Arc::default());
}

/// Ends timers, what waits for sockets, and tasks.
fn end_rest(shared: &Shared) {
    // Of workers that were never started, too.
    close_shards(shared);
    let workers = shared.workers.load_full();
    let Some(first) = workers.first() else { return };
    while let Some(mut part) = steal(|| shared.orphans.steal()) {
        end_part(first.owner(), &mut *part, &|job| shared.injector.push(job));
    }
    for worker in workers.iter() {
        for waker in worker.owner().reactor.close() {
            worker.owner().contain(|| waker.wake());
        }
    }
    // Each task that is alive is queued by this, and dropped by what follows.
    for waker in shared.tasks.close() {
        waker.wake();
    }
    drain(shared);
}

/// Ends all jobs that are queued anywhere.
fn drain(shared: &Shared) {
    while let Some(job) = steal_from(shared) {
        contained(|| job.end());
    }
    shared.drain_injector();
}
