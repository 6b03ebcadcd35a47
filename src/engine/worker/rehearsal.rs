//! What a worker does while it waits awake for a deadline: it goes the way of a sleep that fires once before, so that this way
//! is warm when the deadline comes.
//!
//! A worker that has done nothing for a while is late by cold caches and untrained branch predictors: it takes the timer 0.3 µs after
//! its deadline, and the task runs 4 to 6 µs later. To fetch data and code into the cache is not enough; the way has to be gone,
//! and by the same machine code. So the worker goes on a *stage*: for the length of a rehearsal it has another core in the place of its own,
//! and the thread is that one's worker, with a shard, a deque and counters that nobody else knows, and that share with the worker's
//! own what the descriptors are. There a task sleeps that is in nobody's books. Its sleep is due: the worker takes it
//! from the shard, fires it, wakes the task, takes that from the deque and runs it, by which the task sleeps again.
//!
//! Nothing of that is seen from outside: what is counted is counted on the stage, the worker's own shard, deque and parked word are as they
//! were, and so is what it knows of its jobs. It takes some 6 µs, of a wait in which there is nothing to do, and is left
//! out where that might make the worker late.

use std::{cell::OnceCell, sync::Arc};

use crossbeam::deque;
use tourbillon_shards::{Shard, prefetch};

use crate::{
    engine::{context::entered, core::Core, job::Job, local, local::Local, worker::Worker},
    task::rehearsed::Rehearsing,
    util::contained::contained,
};

/// A worker that has run a job, or rehearsed, less than so long ago, in ns, is still warm.
const COLD: u64 = 200_000;
/// It does not rehearse for a deadline that is farther off than this, in ns: somebody may bring it something to do before.
const NEAR: u64 = 50_000;
/// What a rehearsal takes, in ns, as long as none was measured.
const UNKNOWN: u64 = 10_000;
/// It begins if so many times as much is left until the deadline as it takes, lately,
const ROOM: u64 = 2;
/// which is never taken for more than this, in ns: or once it had taken long there would never be another.
const MOST: u64 = 20_000;
/// By which part of it that follows what one took.
const FOLLOW: u64 = 4;
/// The stage, which takes some 20 µs to be made, is made where so much is left, in ns.
const SET_UP: u64 = 200_000;
/// So many bytes of what the worker writes down are fetched.
const COUNTERS: usize = 256;

/// When a worker rehearses, and where.
pub(crate) struct Rehearsals<'a> {
    stage: &'a OnceCell<Stage>,
    /// Whether there would have been a rehearsal, but for the stage.
    wants_stage: bool,
    /// When a job was run last, or a rehearsal.
    warm_at: u64,
    /// What one takes, lately, in ns.
    takes: u64,
}

/// A core in the place of a worker's own, and a task there.
pub(crate) struct Stage {
    local: Local,
    task: Option<Rehearsing>,
}

impl<'a> Rehearsals<'a> {
    pub(crate) fn on(stage: &'a OnceCell<Stage>) -> Self {
        Self {
            stage,
            wants_stage: false,
            warm_at: 0,
            takes: UNKNOWN,
        }
    }

    /// At this moment, of the real clock, the worker has run something.
    #[inline]
    pub(crate) fn ran(&mut self, at: u64) {
        self.warm_at = at;
    }

    /// Whether it is time for one at `now`, of the real clock, with so much left until the deadline.
    fn are_due(&self, now: u64, left: u64) -> bool {
        left <= NEAR && left >= ROOM * self.takes && now.saturating_sub(self.warm_at) >= COLD
    }

    fn note(&mut self, took: u64) {
        self.takes = self.takes - self.takes / FOLLOW + took.min(MOST) / FOLLOW;
    }
}

impl Stage {
    /// That of the worker of this core.
    fn of(core: &Core) -> Self {
        let deque = deque::Worker::new_fifo();
        let shard = Arc::new(Shard::new(core.on_stage(deque.stealer())));
        let local = Local::new(shard, deque);
        let (job, task) = crate::task::rehearsed::rehearsed(&local.shard);
        // It arms its sleep in the first rehearsal.
        local.deque.push(Job::Task(job));
        Self {
            local,
            task: Some(task),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let (local, task) = (&self.local, self.task.take());
        local::with_worker(local, || {
            // It is scheduled to be dropped, and drops its sleep then. As part of a batch, or a peer would be woken.
            local.batch(|| drop(task));
            while let Some(job) = local.next() {
                job.end();
            }
            // The shard is referred to by its timers, and is left open by nobody.
            drop(local.shard.close());
        });
    }
}

impl<'a> Worker<'a> {
    /// Makes the stage, if one is wanted and there is time to. For who has nothing to do.
    #[inline]
    pub(crate) fn set_stage(&mut self) {
        if self.rehearsals.wants_stage {
            self.set_stage_in_time();
        }
    }

    #[cold]
    fn set_stage_in_time(&mut self) {
        let next = self.local.shard.next_deadline();
        if next.saturating_sub(self.shared.clock.now()) < SET_UP {
            return;
        }
        self.rehearsals.wants_stage = false;
        if entered::any_entered() {
            // The task would arm its sleep in the runtime that a hook has entered.
            return;
        }
        let stage = self.rehearsals.stage;
        // The task is to have armed its sleep.
        self.go_on(stage.get_or_init(|| Stage::of(self.core)));
    }

    /// Rehearses, if it is time to. For who waits awake, has just looked around, and found nothing.
    pub(crate) fn rehearse_in_time(&mut self) {
        // A simulated world has no caches.
        if cfg!(tourbillon_sim) {
            return;
        }
        let now = self.in_loop.at;
        let next = self.local.shard.next_deadline();
        let left = next.saturating_sub(self.shared.clock.present(now));
        if !self.rehearsals.are_due(now, left) {
            return self.set_stage();
        }
        match self.rehearsals.stage.get() {
            None => self.rehearsals.wants_stage = true,
            Some(_) if self.local.has_jobs() => {}
            Some(stage) => self.rehearse(stage),
        }
    }

    #[cold]
    fn rehearse(&mut self, stage: &'a Stage) {
        // What on the stage is another's.
        self.local.shard.prefetch_first();
        prefetch(&*self.core.recorder.own, COUNTERS);
        prefetch(&self.core.recorder.late.wake, COUNTERS);
        let before = self.shared.clock.real();
        self.go_on(stage);
        let now = self.shared.clock.real();
        self.rehearsals.note(now.saturating_sub(before));
        self.rehearsals.ran(now);
        #[cfg(test)]
        self.core
            .rehearsals
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Takes what is due on the stage, and runs what is queued there.
    fn go_on(&mut self, stage: &'a Stage) {
        let own = (self.local, self.core);
        let counts = (self.tick, self.outside_at, self.looked, self.taken);
        let searches = std::mem::take(&mut self.search.is_on);
        (self.local, self.core) = (&stage.local, stage.local.shard.owner());
        // The injector is not looked at, and a search goes on.
        (self.outside_at, self.looked, self.taken) = (u64::MAX, self.tick, 0);
        // No foreign code runs there. Should there be a panic all the same, the worker is to be itself again.
        contained(|| {
            local::with_worker(self.local, || {
                self.fire_due();
                self.run_queued();
                self.core.watch.end();
            });
        });
        (self.local, self.core) = own;
        (self.tick, self.outside_at, self.looked, self.taken) = counts;
        self.search.is_on = searches;
    }
}

#[cfg(all(test, not(any(miri, tourbillon_sim))))]
mod tests {
    use std::{
        sync::atomic::Ordering,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{api::runtime::Runtime, metrics::activity::Activity, time::sleep};

    /// Longer than anything takes that works.
    const PATIENCE: Duration = Duration::from_secs(300);
    const LENGTH: Duration = Duration::from_millis(1);

    fn runtime() -> (Runtime, Arc<crate::engine::core::WorkerShard>) {
        let runtime = Runtime::builder()
            .worker_threads(1)
            .spin_before(Duration::from_micros(300))
            .build()
            .unwrap();
        let worker = runtime.handle().shared().workers()[0].clone();
        (runtime, worker)
    }

    /// A task that sleeps once.
    fn sleep_once(runtime: &Runtime) {
        let task = runtime.spawn(async {
            let begin = Instant::now();
            sleep(LENGTH).await;
            assert!(begin.elapsed() >= LENGTH);
        });
        runtime.block_on(task).unwrap();
    }

    fn rehearsals(worker: &crate::engine::core::WorkerShard) -> usize {
        worker.owner().rehearsals.load(Ordering::Relaxed)
    }

    /// Sleeps until it has rehearsed so many times more; how many sleeps that took.
    fn rehearse(runtime: &Runtime, worker: &crate::engine::core::WorkerShard, times: usize) -> u64 {
        let (goal, begin) = (rehearsals(worker) + times, Instant::now());
        let mut slept = 0;
        while rehearsals(worker) < goal {
            assert!(
                begin.elapsed() < PATIENCE,
                "{} of {goal}",
                rehearsals(worker)
            );
            sleep_once(runtime);
            slept += 1;
        }
        slept
    }

    #[test]
    fn nothing_is_seen_of_a_rehearsal() {
        let (runtime, worker) = runtime();
        let sleeps = rehearse(&runtime, &worker, 5);
        // It sleeps again: all is written down.
        let begin = Instant::now();
        while runtime.metrics().workers()[0].activity != Activity::Parked {
            assert!(begin.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        let metrics = runtime.metrics();
        let total = metrics.total();
        assert_eq!(
            (metrics.spawned_tasks_count(), metrics.num_alive_tasks()),
            (sleeps, 0)
        );
        let worker = &metrics.workers()[0];
        assert_eq!(
            (worker.stored, worker.pending, worker.queue_depth),
            (0, 0, 0)
        );
        assert_eq!(metrics.num_helpers(), 0);
        if cfg!(not(tourbillon_no_metrics)) {
            assert_eq!((total.armed_local, total.armed_remote), (sleeps, 0));
            assert_eq!(
                (total.fired, total.cancelled, total.refreshed),
                (sleeps, 0, 0)
            );
            assert_eq!((total.polls, total.callbacks), (2 * sleeps, 0));
            assert_eq!((total.jobs_stolen, total.panics), (0, 0));
            assert_eq!(worker.wake_lateness.count(), sleeps);
        }
    }

    #[test]
    fn the_stage_goes_with_the_worker() {
        for gracefully in [false, true] {
            let (runtime, worker) = runtime();
            rehearse(&runtime, &worker, 1);
            let shared = Arc::downgrade(runtime.handle().shared());
            drop(worker);
            if gracefully {
                // There is no task to wait for.
                assert!(runtime.shutdown_graceful(PATIENCE));
            } else {
                drop(runtime);
            }
            assert_eq!(shared.strong_count(), 0);
        }
    }

    #[test]
    fn a_stage_leaves_nothing_whenever_it_is_dropped() {
        let (_runtime, worker) = runtime();
        // As it is made; asleep; due and woken.
        for step in 0..3 {
            let stage = Stage::of(worker.owner());
            let shard = Arc::downgrade(&stage.local.shard);
            local::with_worker(&stage.local, || {
                if step > 0 {
                    let Some(Job::Task(task)) = stage.local.next() else {
                        panic!("it is queued");
                    };
                    task.run();
                    assert_eq!(stage.local.shard.stored(), 1);
                }
                if step > 1 {
                    let mut due = Vec::new();
                    stage.local.shard.expire(u64::MAX, 16, &mut due);
                    assert_eq!(due.len(), 1);
                    due.pop().unwrap().run(|| 0);
                }
            });
            drop(stage);
            // To which the task and its sleep refer, and which refers to the runtime.
            assert_eq!(shard.strong_count(), 0);
        }
    }

    #[test]
    fn who_is_warm_or_has_no_time_does_not_rehearse() {
        let stage = OnceCell::new();
        let mut rehearsals = Rehearsals::on(&stage);
        rehearsals.ran(1_000_000);
        let cold = 1_000_000 + COLD;
        assert!(rehearsals.are_due(cold, NEAR));
        assert!(!rehearsals.are_due(cold - 1, NEAR), "it is warm");
        assert!(!rehearsals.are_due(cold, NEAR + 1), "it is too early");
        assert!(rehearsals.are_due(cold, ROOM * UNKNOWN));
        assert!(
            !rehearsals.are_due(cold, ROOM * UNKNOWN - 1),
            "it is too late"
        );
        (0..100).for_each(|_| rehearsals.note(3_000));
        assert!(rehearsals.are_due(cold, ROOM * 3_100));
        assert!(!rehearsals.are_due(cold, ROOM * 2_900));
        (0..100).for_each(|_| rehearsals.note(u64::MAX));
        assert!(rehearsals.are_due(cold, NEAR), "there will be others");
    }
}
