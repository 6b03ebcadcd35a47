//! How the number of workers that take part follows what the system lets them use: the CPU quotas
//! of the process's control group and of those above it, the affinity masks and the cpuset of the
//! workers, and the cores that are online.
//!
//! A worker looks, about once a second, while some worker is awake. So an idle runtime looks at
//! nothing, and what it misses makes no difference until its workers have work again. Of the
//! workers that come by, one looks. The runtimes of a process share one reader of the quotas.
//!
//! The kernel tells no one of all that may change. `inotify` reports a write to `cpu.max`, although
//! its manual promises nothing for such file systems. But no event comes when the process is moved
//! to another group, when its masks are set, or when a core goes offline, and those of
//! `cgroup.events` and of pressure stall information are about other things. A look finds all of
//! these.
//!
//! The least of three numbers take part: the workers that there are, those that
//! [`set_workers`](crate::runtime::Handle::set_workers) asked for, and those that can use what the
//! system allows.

use std::time::Duration;

use tourbillon_shards::{NEVER, TypeName};

use crate::{
    engine::{shared::Shared, worker::Worker},
    sys::cpu::Allowed,
    util::nanos::nanos,
};

/// How often the workers of a runtime look, while one of them comes by between two jobs. Then a
/// change is noticed within this time and twice [`SOON`], so within a second. The work of a
/// simulated worker is over within some ms.
const PERIOD: Duration = match cfg!(tourbillon_sim) {
    true => Duration::from_millis(2),
    false => Duration::from_millis(600),
};
/// When a worker comes by again that has come too early: another one had looked. It is also the age
/// up to which a runtime believes what another one of the process has read, and the longest time
/// for which a worker puts off a look.
const SOON: Duration = Duration::from_nanos(PERIOD.as_nanos() as u64 / 4);
/// A worker puts off a look if a deadline is nearer than this: a look may wait for a lock in the
/// kernel.
const NEAR: Duration = Duration::from_millis(1);

impl Shared {
    /// Sets by hand how many workers take part at most.
    pub(crate) fn limit_by_hand(&self, workers: usize) {
        self.wake_for_limit(self.limits.by_hand(&self.limit, workers));
    }

    /// Sets what the system allows, as a look has found that began at `begun`, in ns by the real
    /// clock.
    pub(crate) fn limit_by_system(&self, allowed: Allowed, begun: u64) {
        self.wake_for_limit(self.limits.by_system(&self.limit, allowed, begun));
    }
}

/// When a worker next looks, in ns by the real clock. [`NEVER`] if its runtime does not follow the
/// limits.
#[derive(Debug)]
pub(super) struct NextLook(u64);

impl NextLook {
    /// Returns the moment for a worker that starts.
    pub(super) fn new(shared: &Shared, is_helper: bool) -> Self {
        match shared.config.follows_limits && !is_helper {
            true => Self(0),
            false => Self(NEVER),
        }
    }
}

impl Worker<'_> {
    /// Looks at what the system allows, if it is time. Returns whether it has looked: that takes
    /// some tens of µs, in which work may have come.
    #[inline]
    pub(super) fn looks_at_limits(&mut self) -> bool {
        self.in_loop.at >= self.next_look.0 && self.look_at_limits()
    }

    #[cold]
    #[inline(never)]
    fn look_at_limits(&mut self) -> bool {
        let (now, shared) = (self.in_loop.at, self.shared);
        // Not for long: a worker with many timers always has a deadline that is near, also one that
        // waits awake for each.
        let left = (self.local.shard.next_deadline()).saturating_sub(self.fired_at);
        if left < nanos(NEAR) && now < self.next_look.0.saturating_add(nanos(SOON)) {
            return false;
        }
        // On a clock that was ever paused, all must depend on the program.
        let least = nanos(PERIOD - SOON);
        let looks = !shared.clock.was_paused() && shared.limits.looked.try_begin(now, least);
        if looks {
            // While a worker counts as a searcher, no other one is woken for new work.
            if self.search.is_on {
                self.found();
            }
            let begun = self.begin_look();
            shared.limit_by_system(shared.mask.allowed_now(SOON), begun);
            self.core.watchdog.watch.end();
            // A look says nothing of how long the program's jobs take.
            self.end_turn();
        }
        self.next_look.0 = now + nanos(if looks { PERIOD } else { SOON });
        let may_spin = shared.limits.may_spin();
        self.wait_policy.set_spin(&shared.config, may_spin);
        looks
    }

    /// Begins a look, which is a job for the watchdog and the recorder: it may wait for a lock in
    /// the kernel. Otherwise its time would be that of the jobs before it, or of nobody. Returns
    /// when it began, in ns.
    fn begin_look(&mut self) -> u64 {
        self.back_in_loop();
        // It takes no turn of the injector.
        (self.tick, self.injector_at) = (self.tick + 1, self.injector_at + 1);
        let name = const { TypeName::of::<LookAtLimits>() };
        self.core.watchdog.watch.begin(self.tick, name, None);
        self.in_loop.at
    }
}

/// What stall reports and the flight recorder call a look.
struct LookAtLimits;

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        time::Instant,
    };

    use super::*;
    use crate::{
        api::builder::Builder,
        engine::{core::WorkerShard, local::with_local},
    };

    /// The limit here is one that no look sets. So a look corrects it.
    #[test]
    fn a_runtime_whose_clock_was_paused_does_not_look() {
        const WRONG: usize = 1_000_000;
        let build = |workers| {
            let mut builder = Builder::new();
            builder.worker_threads(workers).follow_limits(true);
            builder.build().unwrap()
        };
        // Also the only worker of a runtime looks.
        let (paused, others) = (build(2), [build(1), build(2)]);
        paused.handle().pause_clock();
        paused.handle().resume_clock();
        let limit = |runtime: &crate::Runtime| runtime.handle().shared().limit.get();
        paused.handle().shared().limit.set(WRONG);
        let begin = Instant::now();
        for _ in 0..2 {
            others
                .iter()
                .for_each(|it| it.handle().shared().limit.set(WRONG));
            while others.iter().any(|it| limit(it) == WRONG) {
                assert!(begin.elapsed() < Duration::from_secs(300));
                // Workers that sleep do not look.
                for runtime in others.iter().chain([&paused]) {
                    runtime.block_on(runtime.spawn(async {})).unwrap();
                }
            }
        }
        assert_eq!(limit(&paused), WRONG);
    }

    /// Returns a runtime that follows its limits, and the reports of its stalls.
    fn with_reports(workers: usize) -> (crate::Runtime, mpsc::Receiver<String>) {
        let (reports, reported) = mpsc::channel();
        let runtime = Builder::new()
            .worker_threads(workers)
            .follow_limits(true)
            .stall_threshold(Duration::from_millis(20))
            .on_stall(move |stall| _ = reports.send(stall.to_string()))
            .build();
        (runtime.unwrap(), reported)
    }

    /// Runs `job` on the runtime again and again for 100 ms, in which a look that begins does not
    /// end, as if the kernel did not answer.
    fn hold_looks(runtime: &crate::Runtime, job: impl Fn() + Clone + Send + 'static) {
        let held = runtime.handle().shared().mask.held();
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            let job = job.clone();
            runtime.spawn(async move { job() });
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(held);
    }

    fn is_look(stall: String) -> bool {
        stall.contains("LookAtLimits")
    }

    #[test]
    fn a_look_that_takes_long_is_reported_by_its_name() {
        let (runtime, reported) = with_reports(2);
        let begin = Instant::now();
        while !reported.try_iter().any(is_look) {
            assert!(begin.elapsed() < Duration::from_secs(300));
            hold_looks(&runtime, || ());
            runtime.block_on(runtime.spawn(async {})).unwrap();
        }
    }

    /// Otherwise the worker would poll after each job, and wake peers for the shortest ones.
    #[test]
    fn a_look_that_takes_long_does_not_make_jobs_seem_long() {
        let (runtime, reported) = with_reports(1);
        let (paces, seen) = mpsc::channel();
        let note = move || {
            let jobs = with_local(|local| local.unwrap().pace.jobs_within(100_000_000));
            _ = paces.send(jobs);
        };
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < Duration::from_secs(300));
            hold_looks(&runtime, note.clone());
            runtime.block_on(runtime.spawn(async {})).unwrap();
            let least = seen.try_iter().min();
            // The worker itself reports a look, before its next job.
            if reported.try_iter().any(is_look) && least.is_some_and(|jobs| jobs > 10) {
                break;
            }
        }
    }

    /// Worker 2 alone changes its duty here. All others sleep on.
    #[test]
    fn a_change_of_the_limit_wakes_those_that_it_concerns() {
        const WORKERS: usize = 8;
        // On a busy machine, an alarm would call a retired worker.
        let mut builder = Builder::new();
        let builder = builder
            .worker_threads(WORKERS)
            .rescue_latency(Duration::MAX);
        let runtime = builder.build().unwrap();
        let shared = runtime.handle().shared();
        let rest = |active| {
            let begin = Instant::now();
            while shared.queues.searchers.parked() != active
                || shared.retired_asleep() != WORKERS - active
            {
                assert!(begin.elapsed() < Duration::from_secs(300), "no rest");
                std::thread::yield_now();
            }
            let workers = shared.workers.load();
            let sleeps = |worker: &Arc<WorkerShard>| worker.owner().recorder.unparks.get();
            workers.iter().map(sleeps).collect::<Vec<_>>()
        };
        rest(WORKERS);
        runtime.handle().set_workers(2).unwrap();
        // A retired worker may wake up by itself, to return memory of the process.
        let others_slept = || {
            let before = rest(2);
            runtime.handle().set_workers(3).unwrap();
            let after = rest(3);
            assert!(before[2] < after[2]);
            runtime.handle().set_workers(2).unwrap();
            before[3..] == after[3..]
        };
        assert!((0..10).any(|_| others_slept()));
    }
}
