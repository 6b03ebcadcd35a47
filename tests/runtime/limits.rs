//! The number of workers that take part follows what the system allows, while the runtime runs:
//! `Builder::follow_limits`.
//!
//! Each test has a process of its own, whose masks and control groups it changes.

use std::{fs, sync::mpsc, thread, time::Duration};

use tourbillon::{
    Runtime, Timer,
    runtime::Builder,
    task::{self, JoinHandle},
    time::sleep,
};

use super::cores::{mask, mask_of, set_mask_of_all};
use crate::common::{
    Gate, HOUR, PATIENCE, alarm, eventually,
    process::alone,
    quota::{enter_group, enter_groups, is_limited},
    skip, spin,
};

/// Runs `test` with two cores of the process, if there are so many and no quota limits it.
fn with_two_cores(test: impl FnOnce([usize; 2])) {
    let _alarm = alarm();
    let cores = mask();
    if cores.len() < 2 {
        return skip("this needs two cores");
    }
    if is_limited() {
        return skip("this process has a CPU quota already");
    }
    let cores = [cores[0], cores[cores.len() - 1]];
    set_mask_of_all(&cores);
    test(cores);
}

/// Keeps the workers of a runtime from a long sleep until it is dropped, since only workers that
/// are awake look at what the system allows. It panics there if a task has not run to its end.
struct Busy<'a> {
    runtime: &'a Runtime,
    end: Gate,
    tasks: Vec<JoinHandle<()>>,
}

fn busy(runtime: &Runtime) -> Busy<'_> {
    let end = Gate::new();
    let task = |end: Gate| async move {
        while !end.is_open() {
            sleep(Duration::from_millis(5)).await;
            tourbillon::spawn(async {}).await.unwrap();
        }
    };
    let tasks = (0..8).map(|_| runtime.spawn(task(end.clone()))).collect();
    Busy {
        runtime,
        end,
        tasks,
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.end.open();
        for task in self.tasks.drain(..) {
            self.runtime.block_on(task).unwrap();
        }
    }
}

fn active(runtime: &Runtime) -> usize {
    runtime.metrics().active_workers()
}

#[track_caller]
fn becomes(runtime: &Runtime, workers: usize) {
    let what = format!("{workers} workers take part");
    eventually(&what, || active(runtime) == workers);
}

/// Waits until the workers have looked again at what the system allows. On a busy machine they may
/// not have; a test that expects no change proves less then.
fn look_again() {
    thread::sleep(Duration::from_secs(2));
}

/// Returns the masks of the workers.
fn masks(runtime: &Runtime) -> Vec<Vec<usize>> {
    let threads = runtime.handle().threads().into_iter();
    let masks = threads.map(|thread| mask_of(thread as i32).unwrap());
    masks.collect()
}

/// Builds a runtime of so many workers that follows what the system allows.
fn following(workers: usize) -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(workers).follow_limits(true);
    builder.build().unwrap()
}

/// Builds a runtime that follows what the system allows, with a worker pinned to each of these
/// cores.
fn pinned_to(cores: [usize; 2]) -> Runtime {
    let mut builder = Builder::new();
    builder.cores(cores).follow_limits(true);
    builder.build().unwrap()
}

#[test]
fn of_many_workers_as_many_take_part_as_there_are_cores() {
    alone(|| {
        with_two_cores(|_| {
            let runtime = following(64);
            assert_eq!(active(&runtime), 2, "at once");
            assert_eq!(runtime.metrics().num_workers(), 64);
            let busy = busy(&runtime);
            look_again();
            assert_eq!(active(&runtime), 2);
            drop(busy);
        });
    });
}

#[test]
fn the_workers_follow_the_quota_of_their_group() {
    alone(|| {
        with_two_cores(|_| {
            let Some(group) = enter_group(1.0) else {
                return;
            };
            let runtime = following(4);
            assert_eq!(active(&runtime), 1, "at once");
            let _busy = busy(&runtime);
            // A part of a core is one, since it could not be used otherwise.
            let quotas = [(1.5, 2), (0.5, 1), (2.0, 2), (0.2, 1), (3.5, 2)];
            for (quota, workers) in quotas {
                group.limit(Some(quota)).unwrap();
                becomes(&runtime, workers);
            }
            group.limit(Some(1.0)).unwrap();
            becomes(&runtime, 1);
            group.limit(None).unwrap();
            becomes(&runtime, 2);
        });
    });
}

/// As in a pod that is resized.
#[test]
fn a_runtime_that_is_built_under_a_quota_grows_with_it() {
    alone(|| {
        with_two_cores(|cores| {
            let Some(group) = enter_group(0.5) else {
                return;
            };
            let runtime = Builder::new().follow_limits(true).build().unwrap();
            assert_eq!(runtime.metrics().num_workers(), 2);
            becomes(&runtime, 1);
            let _busy = busy(&runtime);
            group.limit(None).unwrap();
            becomes(&runtime, 2);
            assert_eq!(masks(&runtime), [cores, cores], "they are not pinned");
        });
    });
}

#[test]
fn the_workers_follow_the_quotas_above_and_a_move() {
    alone(|| {
        with_two_cores(|_| {
            // The inner group is removed first.
            let Some((outer, inner)) = enter_groups() else {
                return;
            };
            let runtime = following(2);
            let _busy = busy(&runtime);
            becomes(&runtime, 2);
            outer.limit(Some(1.0)).unwrap();
            becomes(&runtime, 1);
            outer.limit(None).unwrap();
            becomes(&runtime, 2);
            // Nobody changes a quota, but the process comes to another group.
            let other = outer.below("other").unwrap();
            other.limit(Some(0.5)).unwrap();
            other.enter().unwrap();
            becomes(&runtime, 1);
            inner.enter().unwrap();
            becomes(&runtime, 2);
        });
    });
}

#[test]
fn the_workers_follow_the_masks_and_stay_where_these_put_them() {
    alone(|| {
        with_two_cores(|cores| {
            let runtime = pinned_to(cores);
            let _busy = busy(&runtime);
            let masks = || masks(&runtime);
            let own = cores.map(|core| vec![core]);
            eventually("the workers are pinned", || masks() == own);
            for core in cores {
                set_mask_of_all(&[core]);
                becomes(&runtime, 1);
                assert_eq!(masks(), [[core], [core]], "what somebody has set stays");
                set_mask_of_all(&cores);
                becomes(&runtime, 2);
                look_again();
                assert_eq!(masks(), [cores, cores], "nobody pins them again");
            }
        });
    });
}

/// The folder of a hierarchy of cpusets, in version 1.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

/// The folder of a cpuset for this process. It is removed when this is dropped, and then the
/// process is in the root.
struct Cpuset(String);

impl Drop for Cpuset {
    fn drop(&mut self) {
        let id = std::process::id().to_string();
        let _ = fs::write(format!("{CPUSETS}/cgroup.procs"), id);
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_workers_follow_a_cpuset() {
    alone(|| {
        with_two_cores(|cores| {
            let own = Cpuset(format!("{CPUSETS}/tourbillon-test-{}", std::process::id()));
            let set = |file: &str, text: String| fs::write(format!("{}/{file}", own.0), text);
            let list = |cores: &[usize]| {
                let cores = cores.iter().map(ToString::to_string);
                cores.collect::<Vec<_>>().join(",")
            };
            let entered = fs::create_dir(&own.0)
                .and_then(|()| set("cpuset.mems", "0".into()))
                .and_then(|()| set("cpuset.cpus", list(&cores)))
                .and_then(|()| set("cgroup.procs", std::process::id().to_string()));
            if let Err(error) = entered {
                return skip(&format!("no cpuset of version 1 can be made: {error}"));
            }
            let runtime = pinned_to(cores);
            let _busy = busy(&runtime);
            let pinned = cores.map(|core| vec![core]);
            eventually("the workers are pinned", || masks(&runtime) == pinned);
            set("cpuset.cpus", list(&cores[..1])).unwrap();
            becomes(&runtime, 1);
            // The kernel may have forgotten the pins, or restore them.
            set("cpuset.cpus", list(&cores)).unwrap();
            becomes(&runtime, 2);
        });
    });
}

#[test]
fn the_smaller_number_counts_of_what_was_set_and_what_is_allowed() {
    alone(|| {
        with_two_cores(|cores| {
            let runtime = following(2);
            let _busy = busy(&runtime);
            runtime.handle().set_workers(1).unwrap();
            look_again();
            assert_eq!(active(&runtime), 1, "two are allowed");
            runtime.handle().set_workers(2).unwrap();
            assert_eq!(active(&runtime), 2);
            set_mask_of_all(&cores[..1]);
            becomes(&runtime, 1);
            runtime.handle().set_workers(2).unwrap();
            assert_eq!(active(&runtime), 1);
            runtime.handle().set_workers(1).unwrap();
            set_mask_of_all(&cores);
            look_again();
            assert_eq!(active(&runtime), 1, "what was set by hand is remembered");
            runtime.handle().set_workers(2).unwrap();
            becomes(&runtime, 2);
        });
    });
}

#[test]
fn a_runtime_follows_the_limits_only_if_it_is_asked_to() {
    alone(|| {
        with_two_cores(|cores| {
            let runtimes = [
                (Builder::new().follow_limits(true).build(), true),
                (Builder::new().build(), false),
                (Builder::new().worker_threads(2).build(), false),
                (Builder::new().cores(cores).build(), false),
                (
                    Builder::new().cores(cores).follow_limits(true).build(),
                    true,
                ),
            ];
            let runtimes = runtimes.map(|(runtime, follows)| (runtime.unwrap(), follows));
            let busy: Vec<_> = runtimes.iter().map(|it| busy(&it.0)).collect();
            let last = &runtimes[runtimes.len() - 1].0;
            for allowed in [1, 2] {
                set_mask_of_all(&cores[..allowed]);
                becomes(&runtimes[0].0, allowed);
                becomes(last, allowed);
                for (i, (runtime, follows)) in runtimes.iter().enumerate() {
                    let workers = if *follows { allowed } else { 2 };
                    assert_eq!(active(runtime), workers, "runtime {i}");
                }
            }
            drop(busy);
        });
    });
}

#[test]
fn no_worker_waits_awake_once_a_quota_allows_less_than_the_masks() {
    alone(|| waits_awake_as_the_quota_lets(2, [1.5, 1.0]));
}

#[test]
fn the_only_worker_does_not_wait_awake_under_a_quota_of_half_a_core() {
    alone(|| waits_awake_as_the_quota_lets(1, [0.5, 0.8]));
}

/// Builds a runtime of so many workers under the first quota, lifts it, and sets the second one. It
/// is the same with both: the workers sleep.
fn waits_awake_as_the_quota_lets(workers: usize, quotas: [f64; 2]) {
    with_two_cores(|_| {
        let Some(group) = enter_group(quotas[0]) else {
            return;
        };
        let mut builder = Builder::new();
        builder.worker_threads(workers).follow_limits(true);
        let runtime = builder.spin_before(Duration::MAX).build().unwrap();
        let arm = |after, callback: Box<dyn FnOnce() + Send>| {
            let timer = Timer::after(after).on_worker(0);
            timer.on(runtime.handle()).start(callback)
        };
        let parks = || runtime.metrics().workers()[0].counts().parks();
        let _hour = arm(HOUR, Box::new(|| ()));
        let sleeps = || {
            // The worker may be at its first sleep or before it. No other would follow.
            let least = parks() + 3;
            eventually("the worker sleeps again and again", || {
                let _now = arm(Duration::ZERO, Box::new(|| ()));
                parks() >= least
            });
        };
        sleeps();
        // It waits awake again.
        group.limit(None).unwrap();
        eventually("the worker sleeps no more", || {
            let before = parks();
            for _ in 0..20 {
                // It has run in each round, and would have gone to sleep after the callback.
                let (sender, receiver) = mpsc::channel();
                let callback = move || sender.send(()).unwrap();
                let _now = arm(Duration::ZERO, Box::new(callback));
                receiver.recv_timeout(PATIENCE).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            parks() == before
        });
        group.limit(Some(quotas[1])).unwrap();
        sleeps();
    });
}

/// Runs `task` until the gate opens, on a runtime whose quota shrinks to `cores`. Without naps, the
/// kernel would stop the process for a part of each period of 100 ms.
fn spreads_its_quota<F>(cores: f64, tasks: usize, task: impl Fn(Gate) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    with_two_cores(|_| {
        let Some(group) = enter_group(2.0) else {
            return;
        };
        let mut builder = Builder::new();
        let builder = builder.worker_threads(2).follow_limits(true).exact();
        let runtime = builder.build().unwrap();
        let end = Gate::new();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| runtime.spawn(task(end.clone())))
            .collect();
        let naps = || runtime.metrics().total().quota_naps();
        assert_eq!(naps(), 0);
        group.limit(Some(cores)).unwrap();
        becomes(&runtime, 1);
        eventually("the kernel stops it in few periods of a second", || {
            let stopped = || runtime.metrics().throttled_periods();
            let before = (stopped(), naps());
            thread::sleep(Duration::from_secs(1));
            stopped() - before.0 <= 3 && naps() - before.1 >= 10
        });
        // Nobody naps once the quota pays for all.
        group.limit(Some(2.0)).unwrap();
        becomes(&runtime, 2);
        eventually("nobody naps", || {
            let before = naps();
            thread::sleep(Duration::from_secs(1));
            naps() == before
        });
        end.open();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    });
}

#[test]
fn a_process_that_computes_spreads_half_a_core_over_time() {
    alone(|| {
        spreads_its_quota(0.5, 4, |end| async move {
            while !end.is_open() {
                spin(Duration::from_micros(100));
                task::yield_now().await;
            }
        });
    });
}

/// Its worker sleeps after each job, which is short. So it never polls because of many jobs.
#[test]
fn a_process_that_pauses_after_each_job_spreads_a_tenth_of_a_core() {
    alone(|| {
        spreads_its_quota(0.1, 1, |end| async move {
            while !end.is_open() {
                spin(Duration::from_micros(20));
                sleep(Duration::from_micros(5)).await;
            }
        });
    });
}
