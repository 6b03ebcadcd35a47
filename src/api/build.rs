//! Builds a runtime from the options of a [`Builder`], and starts its threads.

use std::{collections::BTreeSet, io, ops::Range, sync::Arc};

use crossbeam::deque;
use tourbillon_shards::Shard;

use crate::{
    api::{builder::Builder, runtime::Runtime},
    clock,
    engine::{
        clocks,
        config::Config,
        context::entered,
        core::{Core, Role},
        current_thread::Seat,
        handle::Handle,
        helpers,
        job::Job,
        local::Local,
        mates,
        shared::{Shared, Workers},
        shutdown,
        watchdog::{rescue, rescue::LEAST_LATENCY},
        worker,
        worker::tidy,
    },
    error::BuildError,
    sys,
    sys::{
        cpu::{Cores, RuntimeMask, with_all_cores},
        sync::thread,
    },
};

/// Upper bound for the number of workers and of helpers. More than any machine needs; workers are
/// counted in 32 bits, and several places list them all.
const MAX_WORKERS: usize = 4096;

/// Builds a runtime and starts its workers: see [`Builder::build`].
pub(crate) fn build(builder: &Builder) -> Result<Runtime, BuildError> {
    check(&builder.config)?;
    let is_current_thread = builder.config.is_current_thread();
    // A worker that builds a runtime does not pass on its own core. A current-thread runtime has
    // one worker, on the thread of its `block_on`.
    let (mask, cores) = with_all_cores(|| {
        let cores = (!is_current_thread).then(Cores::of_this_thread);
        (RuntimeMask::of_this_thread(), cores)
    });
    let (count, pins) = match &cores {
        Some(cores) => layout(builder, cores)?,
        None => (1, None),
    };
    // Settings of the whole process. They must be there before the first worker starts.
    tourbillon_pool::prepare_by(sys::memory::populate);
    tourbillon_pool::wake_by(tidy::wake);
    // Call the user's function before anything is started: it may panic. The thread of a `block_on`
    // has a name already.
    let threads = if is_current_thread { 0 } else { count };
    let names: Vec<_> = (0..threads)
        .map(|index| (builder.thread_name)(index))
        .collect();
    if let Some(name) = names.iter().find(|name| name.contains('\0')) {
        let name = name.clone();
        return Err(BuildError::ThreadName { name });
    }
    let mut config = builder.config.clone();
    config.pins.clone_from(&pins);
    mask.expect_workers(threads);
    if is_current_thread {
        config.helpers = (0, 0);
    }
    // A program that says by how much time its timers may be late, or for how long a worker spins
    // for each, does not ask for a budget. Look before `spin_before` is ignored.
    let is_stated = !config.timer_tolerance.is_exact() || config.spin_before > 0;
    // A worker that waits awake uses up the quota, and then the kernel stops all threads. `Cores`
    // has the present quota, but rounded: half a core is one.
    let allowed = mask.allowed_at_first();
    let is_limited =
        cores.as_ref().is_some_and(Cores::has_quota) || allowed.quota_if_less().is_some();
    // A worker that follows the quota waits awake as soon as it may.
    config.follows_limits &= !is_current_thread;
    config.spin &= config.follows_limits || !is_limited;
    if !config.spin {
        // Both would have a worker wake early and spin.
        (config.spin_before, config.timer_advance) = (0, 0);
    }
    config.cores = match cfg!(tourbillon_sim) {
        // Whatever machine the simulation runs on, three workers share cores.
        true => 2,
        false => cores.map_or(1, |cores| usable(builder, pins.as_deref(), &cores)),
    };
    config.shares_cores = config.cores < count;
    config.timer_budget = config.timer_budget.filter(|_| !is_stated);
    // Workers that share a core share its budget: they spend one together, or each has its part.
    if !mates::are_grouped(&config, count) {
        let core_share = (config.cores as f64 / count as f64).min(1.0);
        config.timer_budget = config.timer_budget.map(|share| share * core_share);
    }
    // All state that the threads share exists before the first thread runs.
    let shared = Arc::new(Shared::new(config, mask, count));
    if shared.config.follows_limits {
        shared.limit_by_system(allowed, shared.clock.real());
    }
    if builder.start_paused {
        shared.clock.pause();
    }
    // One deque and one shard for each worker. Peers watch each other from the beginning.
    let mut deques = Vec::with_capacity(count);
    let mut workers = Workers::with_capacity(count);
    for index in 0..count {
        let deque = deque::Worker::new_fifo();
        let core =
            Core::new(index, shared.clone(), deque.stealer(), Role::Worker).map_err(descriptor)?;
        deques.push(deque);
        workers.push(Arc::new(rescue::watched(core, count)));
    }
    rescue::watch_each_other(&workers).map_err(descriptor)?;
    // The shards of the wall clock and of the boot-time clock. Every worker watches their timerfds.
    // A current-thread runtime makes them for the first timer of such a clock.
    if !is_current_thread {
        let clocks = shared.clocks.make(&shared);
        let watch = |worker: &Arc<Shard<Core>>| clocks::watch(worker.owner(), &clocks);
        if let Err(error) = workers.iter().try_for_each(watch) {
            // The shards refer to `shared`, and it to them.
            shared.clocks.forget();
            return Err(descriptor(error));
        }
    }
    shared.workers.store(Arc::new(workers.clone()));
    #[cfg(tourbillon_sim)]
    crate::engine::neglect::watch(&shared);
    // `Instant::now` uses the clock of the runtime that the calling thread is in.
    clock::current::find_by(entered::with_clock);
    // From here on an early return shuts down the threads that were started, by dropping `runtime`.
    let mut runtime = Runtime::from_handle(Handle::new(shared.clone()));
    if is_current_thread {
        // The worker waits for a thread that calls `block_on`.
        let mut seats = workers.into_iter().zip(deques);
        runtime.seat = seats
            .next()
            .map(|(shard, deque)| Seat::new(Local::new(shard, deque)));
        return Ok(runtime);
    }
    let stack_size = builder.config.thread_stack_size;
    let (least, _) = builder.config.helpers;
    // Count the helpers before any worker runs: a worker that found too few would start another.
    (0..least).for_each(|_| shared.queues.searchers.enlist());
    let threads = names.into_iter().zip(workers).zip(deques);
    for (index, ((name, shard), deque)) in threads.enumerate() {
        let core = pins.as_ref().map(|pins| pins[index]);
        match start(stack_size, name, core, shard, deque) {
            Ok(thread) => runtime.threads.push(thread),
            Err(source) => {
                leave_for(index..count, &shared);
                return Err(BuildError::Os {
                    what: "thread",
                    source,
                });
            }
        }
    }
    // Start the least number of helpers, which are counted already.
    for _ in 0..least {
        helpers::start(&shared).map_err(|source| BuildError::Os {
            what: "thread or descriptor",
            source,
        })?;
    }
    Ok(runtime)
}

/// Stops a runtime that cannot be built. The workers that were started end with it. The workers of
/// these indices never run: leave in their place, so that the last worker does not wait for them.
fn leave_for(unstarted: Range<usize>, shared: &Arc<Shared>) {
    shared.stop();
    unstarted.for_each(|_| shutdown::leave(shared));
}

/// Checks that each option has a valid value.
fn check(config: &Config) -> Result<(), BuildError> {
    if config
        .name
        .as_ref()
        .is_some_and(|name| name.trim().is_empty())
    {
        return Err(BuildError::EmptyName);
    }
    for (option, value) in [
        ("event_interval", config.event_interval),
        ("global_queue_interval", config.global_queue_interval),
    ] {
        if value == 0 {
            return Err(BuildError::ZeroInterval { option });
        }
    }
    let (least, most) = config.helpers;
    if least > most || most > MAX_WORKERS {
        return Err(BuildError::Helpers {
            least,
            most,
            max: MAX_WORKERS,
        });
    }
    config
        .default_group
        .check()
        .map_err(BuildError::DefaultGroup)?;
    if config.max_blocking_threads == 0 {
        return Err(BuildError::ZeroBlockingThreads);
    }
    if config.rescue_latency < LEAST_LATENCY {
        return Err(BuildError::RescueLatency {
            asked: config.rescue_latency,
            least: LEAST_LATENCY,
        });
    }
    if let Some(asked) = config
        .timer_budget
        .filter(|share| !(*share > 0.0 && *share <= 1.0))
    {
        return Err(BuildError::TimerBudget { asked });
    }
    if config.stall_threshold == 0 {
        return Err(BuildError::ZeroStallThreshold);
    }
    Ok(())
}

/// Starts the thread of one worker.
fn start(
    stack_size: Option<usize>,
    name: String,
    core: Option<usize>,
    shard: Arc<Shard<Core>>,
    deque: deque::Worker<Job>,
) -> io::Result<thread::JoinHandle<()>> {
    let mut thread = thread::Builder::new().name(name);
    if let Some(bytes) = stack_size {
        thread = thread.stack_size(bytes);
    }
    thread.spawn(move || {
        let mask = shard.owner().shared.mask.clone();
        let _entered = mask.enter(shard.owner().index, core);
        worker::run(shard, deque);
    })
}

/// Returns the number of workers, and the core of each worker if workers are pinned.
fn layout(builder: &Builder, usable: &Cores) -> Result<(usize, Option<Vec<usize>>), BuildError> {
    let count = match (builder.worker_threads, &builder.cores) {
        (Some(count), _) => count,
        (None, Some(cores)) => cores.len(),
        // A quota may rise, and then all cores can be used.
        (None, None) if builder.config.follows_limits => usable.most(),
        (None, None) => usable.parallelism,
    };
    match count {
        0 => return Err(BuildError::ZeroWorkers),
        1..=MAX_WORKERS => {}
        asked => {
            return Err(BuildError::TooManyWorkers {
                asked,
                max: MAX_WORKERS,
            });
        }
    }
    if let Some(cores) = &builder.cores {
        if let Some(&core) = cores.iter().find(|core| !usable.allowed.contains(core)) {
            return Err(BuildError::CoreNotAllowed {
                core,
                allowed: usable.allowed.clone(),
            });
        }
    }
    // Do not pin if the caller said so, if there are more workers than cores, or under a CPU quota,
    // also if one may come: in these cases the kernel chooses cores better. Of pinned workers the
    // first ones would stay on the first cores while others are idle. Named cores are used in turn.
    let pins = match &builder.cores {
        _ if !builder.pin => None,
        Some(cores) if cores.is_empty() => None,
        Some(cores) => Some(cores.iter().copied().cycle().take(count).collect()),
        None if builder.config.follows_limits => None,
        None if count > usable.allowed.len() || usable.has_quota() => None,
        None => Some(usable.allowed[..count].to_vec()),
    };
    Ok((count, pins))
}

/// Returns how many cores the workers may use together, also once a quota that they follow is
/// lifted.
fn usable(builder: &Builder, pins: Option<&[usize]>, cores: &Cores) -> usize {
    match pins {
        Some(pins) => pins.iter().collect::<BTreeSet<_>>().len(),
        None if builder.config.follows_limits => cores.most(),
        None => cores.parallelism,
    }
}

/// Returns the error for a descriptor that the system refused.
fn descriptor(source: io::Error) -> BuildError {
    let what = "descriptor";
    BuildError::Os { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(allowed: &[usize], parallelism: usize) -> Cores {
        Cores {
            allowed: allowed.to_vec(),
            parallelism,
        }
    }

    #[test]
    fn by_default_each_usable_core_has_a_worker() {
        let found = layout(&Builder::new(), &cores(&[1, 3, 5], 3)).unwrap();
        assert_eq!(found, (3, Some(vec![1, 3, 5])));
    }

    #[test]
    fn a_quota_limits_the_workers_and_leaves_them_unpinned() {
        let found = layout(&Builder::new(), &cores(&[0, 1, 2, 3], 2)).unwrap();
        assert_eq!(found, (2, None));
    }

    #[test]
    fn a_quota_that_is_followed_leaves_a_worker_for_each_core() {
        let cores = cores(&[0, 1, 2, 3], 2);
        let builder = |follows| {
            let mut builder = Builder::new();
            builder.follow_limits(follows);
            builder
        };
        let found = layout(&builder(true), &cores).unwrap();
        assert_eq!(found, (4, None));
        assert_eq!(usable(&builder(true), None, &cores), 4);
        assert_eq!(usable(&builder(false), None, &cores), 2);
        let found = layout(builder(true).cores([3, 1]), &cores).unwrap();
        assert_eq!(found, (2, Some(vec![3, 1])), "these are asked for");
    }

    #[test]
    fn more_workers_than_cores_are_not_pinned() {
        let found = layout(Builder::new().worker_threads(3), &cores(&[0, 1], 2)).unwrap();
        assert_eq!(found, (3, None));
    }

    #[test]
    fn fewer_workers_than_cores_are_pinned() {
        let found = layout(Builder::new().worker_threads(1), &cores(&[4, 5], 2)).unwrap();
        assert_eq!(found, (1, Some(vec![4])));
        let found = layout(Builder::new().pin(false), &cores(&[4, 5], 2)).unwrap();
        assert_eq!(found, (2, None));
    }

    #[test]
    fn named_cores_are_used_in_turn() {
        let usable = cores(&[0, 1, 2, 3], 4);
        let found = layout(Builder::new().cores([3, 1]), &usable).unwrap();
        assert_eq!(found, (2, Some(vec![3, 1])));
        let found = layout(Builder::new().cores([3, 1]).worker_threads(3), &usable).unwrap();
        assert_eq!(found, (3, Some(vec![3, 1, 3])));
        assert!(matches!(
            layout(Builder::new().cores([7]), &usable),
            Err(BuildError::CoreNotAllowed { core: 7, allowed }) if allowed == [0, 1, 2, 3]
        ));
        assert!(matches!(
            layout(Builder::new().cores([]), &usable),
            Err(BuildError::ZeroWorkers)
        ));
    }
}
