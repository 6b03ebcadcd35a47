//! The shutdown: ends the workers, and all timers and tasks that wait on them.
//!
//! Each worker that has left its loop closes *all* shards, so that no worker waits for one that is
//! blocked. It splits their timers into batches in one queue, from which all workers take: so
//! callbacks are dropped, and outcomes delivered, in parallel. The last worker to leave then ends
//! what appears only when no worker runs any more: tasks, tasks' waits for sockets, and what these
//! cancel.

use std::{iter, sync::Arc, task::Waker, time::Duration};

use tourbillon_shards::DrainedTimers;
use tourbillon_sync::Patience;

use crate::{
    engine::{
        context::entered, core::Core, job::Job, local::Local, queues::steal, shared::Shared,
        task_core::end::end_pinned, telemetry::snapshot,
    },
    sys::sync::atomic::Ordering,
    util::contained::{each_or, forget},
};

/// How many timers a worker ends before it checks the queues again.
const BATCH: usize = 256;

/// How long a worker that finds nothing to end pauses while others still end something.
const PAUSE: Duration = Duration::from_millis(1);

/// Ends the timers and jobs of the runtime, together with the other workers. Called by each worker
/// that has left its loop.
pub(crate) fn end(local: &Local) {
    let core = local.shard.owner();
    let shared = &core.shared;
    close_shards(shared);
    // End jobs and batches until no work is left, and no outcome that a peer has yet to deliver.
    let mut tasks = Vec::new();
    loop {
        // Look for queued jobs before taking another batch: callbacks that take an outcome are
        // queued one by one in the deque, where peers can steal them while one of them takes long.
        // Not `next`, which also takes pinned tasks: these end below.
        let own = local.next_for_any();
        let own = own.or_else(|| shared.take_injected());
        let job = own.or_else(|| {
            let mut part = shared.queues.steal_closed()?;
            end_part(core, &mut part, &|job| local.deque.push(job));
            local.next_for_any()
        });
        match job.or_else(|| steal_from(shared)) {
            // Keep tasks: the last worker drops them, when no worker runs any more.
            Some(Job::Task(task)) => tasks.push(task),
            Some(job) => core.contain(|| job.end()),
            // Another worker has queued more batches meanwhile.
            None if shared.queues.has_closed() => {}
            None if shared.owes() == 0 => break,
            // A peer delivers an outcome, or is about to. Its callback may add more work.
            None => crate::sys::sync::thread::sleep(PAUSE),
        }
    }
    // Give the tasks back to the deque, where the last worker finds them.
    for task in tasks {
        local.deque.push(Job::Task(task));
    }
    if !core.is_helper {
        // Pinned tasks end on their own thread. The last worker ends what they spawn and cancel.
        end_pinned(core);
    }
    local.release();
}

/// Steals a job from any worker's deque.
fn steal_from(shared: &Shared) -> Option<Job> {
    shared.find_deque(0, |owner| steal(|| owner.stealer.steal()))
}

/// Ends the timers of one batch. Passes callbacks that take an outcome to `deliver`.
fn end_part(core: &Core, part: &mut DrainedTimers<Core>, deliver: &dyn Fn(Job)) {
    let mut more = true;
    while more {
        // If a destructor panics, go on with the remaining timers.
        core.contain(|| {
            while let Some(ended) = part.end_next() {
                if let Some(notice) = ended {
                    deliver(Job::Notice(notice));
                }
            }
            more = false;
        });
    }
}

/// Closes all shards, so that they refuse timers from now on, and queues their timers in batches.
fn close_shards(shared: &Shared) {
    for worker in shared.workers.load().iter() {
        queue(shared, worker.close());
    }
    for clock in shared.clocks.close().iter() {
        queue(shared, clock.shard.close());
    }
}

/// Splits the timers of a closed shard into batches, and queues these.
fn queue(shared: &Shared, mut drained: DrainedTimers<Core>) {
    while !drained.is_empty() {
        shared.queues.push_closed(drained.split(BATCH));
    }
}

/// Leaves the runtime. Each worker calls it once, after it has ended its part. The last one ends
/// everything that is left.
pub(crate) fn leave(shared: &Arc<Shared>) {
    let last = {
        let mut running = shared.lifecycle.running();
        // Decided under the mutex: of workers that leave at the same time, one is the last.
        if *running > 1 {
            *running -= 1;
            false
        } else {
            true
        }
    };
    if last {
        // `running` stays 1 meanwhile: `wait_for_end` returns only after everything has ended.
        entered::with_ending(shared, || end_all(shared));
        *shared.lifecycle.running() = 0;
        shared.lifecycle.notify_end();
    }
    // Wake the thread that waits for the end, if any.
    shared.lifecycle.notify_left();
    // Those that are left may all be in `block_in_place`, and wait for what only the shutdown ends.
    if !last {
        end_if_all_in_place(shared);
    }
}

/// If all remaining workers are in `block_in_place`, ends tasks, timers and sockets: the blocked
/// calls may wait for these, and no other thread will end them.
///
/// Called when a worker has left, when a worker begins `block_in_place`, and when the runtime is
/// told to stop.
pub(crate) fn end_if_all_in_place(shared: &Arc<Shared>) {
    let all_in_place = {
        // While this mutex is held no worker leaves. One that begins `block_in_place` meanwhile
        // looks here by itself.
        let running = shared.lifecycle.running();
        let in_place = shared.in_place.load(Ordering::Acquire);
        shared.is_stopping() && *running > 0 && *running == in_place
    };
    if all_in_place {
        entered::with_ending(shared, || end_rest(shared));
    }
}

/// Ends everything that no worker will run any more, on the last worker. Dropping tasks may wake,
/// spawn and arm others; these end, too.
fn end_all(shared: &Shared) {
    if shared.workers.load().is_empty() {
        return;
    }
    end_rest(shared);
    // Workers that were never started have not ended their pinned tasks. The others have.
    for worker in shared.workers.load_full().iter() {
        end_pinned(worker.owner());
    }
    let mut patience = Patience::default();
    loop {
        drain(shared);
        // A remote thread may have cancelled a timer and be about to deliver its outcome. The
        // callback must run on a worker, and this is the last one: wait for it.
        if shared.owes() == 0 {
            break;
        }
        patience.wait();
    }
    // From here on a thread that injects a job ends it itself. A job that was injected before the
    // flag was visible is found by the second drain: the fence orders the flag before it.
    shared.queues.set_drained();
    crate::sys::sync::atomic::fence(Ordering::SeqCst);
    drain(shared);
    shared.quiescence.close();
    // Break the reference cycle between the shards' owners and `shared`.
    shared.workers.store(Arc::default());
    snapshot::keep_sweeps(shared);
    shared.clocks.forget();
}

/// Ends all timers, all waits for sockets, and all tasks.
fn end_rest(shared: &Shared) {
    // Also the shards of workers that were never started.
    close_shards(shared);
    let workers = shared.workers.load_full();
    let Some(first) = workers.first() else { return };
    // This thread may have no deque of the runtime: queue outcomes in the injector, which is
    // drained below.
    while let Some(mut part) = shared.queues.steal_closed() {
        end_part(first.owner(), &mut part, &|job| shared.queues.push(job));
    }
    // Closing a reactor fails its waiting operations, so wake the tasks.
    for worker in workers.iter() {
        let owner = worker.owner();
        owner.contain_each(owner.reactor.close(), Waker::wake);
    }
    // Closing the registry wakes each waiting task, which queues it; the drain then drops it.
    for waker in shared.tasks.close() {
        waker.wake();
    }
    drain(shared);
}

/// Ends all jobs in all queues, without running them.
fn drain(shared: &Shared) {
    each_or(iter::from_fn(|| steal_from(shared)), Job::end, forget);
    shared.drain_injected();
}
