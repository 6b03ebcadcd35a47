//! What the builder of tokio's signatures can set, and tokio's `UnhandledPanic`: for the package in
//! the folder `crates/tokio` alone.

use std::{fmt, iter, panic::Location, sync::Arc, time::Duration};

use crate::{
    engine::{
        context::entered,
        core::Core,
        job::Job,
        local::{Local, with_local_of},
        shared::Shared,
        task_core::{home::Home, id::Id, meta::TaskMeta},
    },
    metrics::spawned::Spawned,
    sys::sync::atomic::Ordering::Relaxed,
    util::contained::{each_or, forget},
};
#[cfg(tokio_unstable)]
use crate::{
    engine::{job::TaskJob, task_core::local_queue::Pushed},
    metrics::{
        recorder::Recorder,
        unstable::{Buckets, Histogram},
    },
};

/// The options of a runtime that tokio's builder has, and Tourbillon's has not.
#[derive(Clone)]
pub struct Options {
    /// Which parts were enabled.
    pub drivers: Drivers,
    /// What is called with each task.
    pub hooks: TaskHooks,
    /// Whether the thread that builds the runtime may spawn tasks that are not `Send`. Only for a
    /// current-thread runtime that stays on that thread.
    pub is_local: bool,
    /// What a panic of a task does. Only a current-thread runtime can shut down.
    pub unhandled_panic: UnhandledPanic,
    /// Whether a task that is woken is queued behind the others, and not in the next slot.
    pub disables_next_slot: bool,
    /// What is measured.
    #[cfg(tokio_unstable)]
    pub measures: Measures,
    /// Is called with the loop of each worker, and with that of each `block_on`, and calls it once.
    pub around_polls: Option<AroundPolls>,
}

/// See [`Options::around_polls`].
pub type AroundPolls = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

impl Options {
    /// The options of a runtime that Tourbillon's own builder builds.
    pub const DEFAULT: Self = Self {
        drivers: Drivers {
            io: true,
            time: true,
        },
        hooks: TaskHooks {
            spawn: None,
            before_poll: None,
            after_poll: None,
            terminate: None,
        },
        is_local: false,
        unhandled_panic: UnhandledPanic::Ignore,
        disables_next_slot: false,
        #[cfg(tokio_unstable)]
        measures: Measures {
            poll_times: None,
            latencies: None,
            tracks_latency: false,
        },
        around_polls: None,
    };

    /// Runs `f`, the loop of a worker or of a `block_on`.
    pub(crate) fn around<R>(&self, f: impl FnOnce() -> R) -> R {
        let Some(around) = &self.around_polls else {
            return f();
        };
        let (mut f, mut output) = (Some(f), None);
        around(&mut || output = f.take().map(|f| f()));
        output.expect("the function calls what it is given")
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

/// Which parts of a runtime were enabled. tokio's builder enables each by a method, and what needs
/// a part panics without it. Here all parts always work, and the package in the folder
/// `crates/tokio` does the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drivers {
    /// Sockets, signals and processes.
    pub io: bool,
    /// Timers.
    pub time: bool,
}

impl Drivers {
    /// Returns those of the runtime that the calling thread is in. `None` outside of any.
    pub fn here() -> Option<Self> {
        entered::with_current(|shared| shared.config.facade.drivers)
    }
}

/// A user's function that is called with the number of a task, where it was spawned, and, at a
/// poll, how long the task was queued before it, if that is measured.
pub type TaskHook = Arc<dyn Fn(Id, &'static Location<'static>, Option<Duration>) + Send + Sync>;

/// The functions that are called with each task of a runtime. Tasks of a `LocalSet` are not of the
/// runtime.
#[derive(Clone, Default)]
pub struct TaskHooks {
    /// When it is spawned, before it can run. A panic goes to the caller.
    pub spawn: Option<TaskHook>,
    /// By its worker, before each poll.
    pub before_poll: Option<TaskHook>,
    /// By its worker, after each poll.
    pub after_poll: Option<TaskHook>,
    /// When its future is gone. Also of a job of `spawn_blocking`, as in tokio.
    pub terminate: Option<TaskHook>,
}

impl fmt::Debug for TaskHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHooks").finish_non_exhaustive()
    }
}

/// What a panic of a task does to the other tasks of its runtime or `LocalSet`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum UnhandledPanic {
    /// Nothing: the join handle of the task returns it.
    #[default]
    Ignore,
    /// All tasks are cancelled, no more are taken, and what waits for the runtime or the set
    /// panics.
    ShutdownRuntime,
}

impl UnhandledPanic {
    /// Returns whether all tasks are cancelled.
    pub(crate) fn shuts_down(&self) -> bool {
        matches!(self, Self::ShutdownRuntime)
    }
}

/// Tells the hook that a task was spawned in a home.
#[inline]
pub(crate) fn tell_spawned(home: &Home, id: Id, spawned: Spawned) {
    if let Some(hook) = (home.core()).and_then(|it| it.shared.config.facade.hooks.spawn.as_ref()) {
        hook(id, spawned.place(), None);
    }
}

/// Tells the hook that a task of a home has ended.
#[inline]
pub(crate) fn tell_ended(home: &Home, id: Id, spawned: Spawned) {
    let Some(core) = home.core() else { return };
    if let Some(hook) = &core.shared.config.facade.hooks.terminate {
        core.contain(|| hook(id, spawned.place(), None));
    }
}

/// A poll of a task, with the hooks around it. It begins when the poll is published: a hook that
/// takes long is part of the job.
pub(crate) struct HookedPoll<'a> {
    core: &'a Core,
    id: Id,
    spawned: Spawned,
    /// For how long the task was queued, and when the poll began, in ns, as far as this is measured.
    #[cfg(tokio_unstable)]
    timed: (Option<Duration>, Option<u64>),
}

impl<'a> HookedPoll<'a> {
    #[inline]
    pub(crate) fn begin(core: &'a Core, task: &TaskMeta) -> Self {
        let poll = Self {
            core,
            id: task.id(),
            spawned: task.spawned(),
            #[cfg(tokio_unstable)]
            timed: core.shared.config.facade.measures.begin(core, task),
        };
        poll.tell(core.shared.config.facade.hooks.before_poll.as_ref());
        poll
    }

    #[inline]
    fn tell(&self, hook: Option<&TaskHook>) {
        if let Some(hook) = hook {
            let place = self.spawned.place();
            #[cfg(tokio_unstable)]
            let latency = self.timed.0;
            #[cfg(not(tokio_unstable))]
            let latency = None;
            self.core.contain(|| hook(self.id, place, latency));
        }
    }
}

impl Drop for HookedPoll<'_> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(tokio_unstable)]
        if let (Some(begun), Some(times)) = (self.timed.1, &self.core.recorder.unstable.poll_times)
        {
            times.record(self.core.shared.clock.real().saturating_sub(begun));
        }
        let hooks = &self.core.shared.config.facade.hooks;
        self.tell(hooks.after_poll.as_ref());
    }
}

/// What is measured at each poll, which takes readings of the clock.
#[cfg(tokio_unstable)]
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// The buckets of the durations of polls, if they are counted.
    pub poll_times: Buckets,
    /// The buckets of the times for which tasks are queued, if they are counted.
    pub latencies: Buckets,
    /// Whether the hooks learn for how long a task was queued.
    pub tracks_latency: bool,
}

#[cfg(tokio_unstable)]
impl Measures {
    /// Adds the histograms to those of a worker.
    pub(crate) fn add_to(&self, recorder: &mut Recorder) {
        recorder.unstable.poll_times = self.poll_times.as_ref().map(Histogram::new);
        recorder.unstable.latencies = self.latencies.as_ref().map(Histogram::new);
    }

    /// Returns for how long the task was queued, and when its poll begins, as far as this is
    /// measured.
    #[inline]
    fn begin(&self, core: &Core, task: &TaskMeta) -> (Option<Duration>, Option<u64>) {
        if self.poll_times.is_none() && !self.tracks_latency {
            return (None, None);
        }
        let now = core.shared.clock.real();
        let queued_at = task.queued_at.load(Relaxed);
        let latency = (queued_at != 0).then(|| now.saturating_sub(queued_at));
        if let (Some(latency), Some(latencies)) = (latency, &core.recorder.unstable.latencies) {
            latencies.record(latency);
        }
        (latency.map(Duration::from_nanos), Some(now))
    }
}

/// Notes that a task is queued now, if its runtime measures that.
#[cfg(tokio_unstable)]
#[inline]
pub(crate) fn note_queued(task: &TaskJob) {
    let meta = task.metadata();
    if let Some(shared) = meta.home().shared() {
        if shared.config.facade.measures.tracks_latency {
            meta.queued_at.store(shared.clock.real().max(1), Relaxed);
        }
    }
}

/// Counts that a pinned task of a worker was queued.
#[cfg(tokio_unstable)]
pub(crate) fn count_pinned(core: &Core, pushed: Pushed) {
    match pushed {
        Pushed::Local => core.recorder.unstable.schedules.add_alone(1),
        Pushed::Remote => core.shared.unstable.remote_schedules.add(1),
    }
}

/// Counts a poll whose budget is used up, in the runtime that the calling thread is in.
pub fn count_forced_yield() {
    #[cfg(tokio_unstable)]
    entered::with_current(|shared| shared.unstable.forced_yields.add(1));
}

/// Returns the home of the tasks that are not `Send`, if the calling thread is in a local runtime
/// that it has built.
pub(crate) fn local_home() -> Option<Home> {
    entered::with_current(home_of_local).flatten()
}

/// Returns whether the calling thread is in a local runtime that has ended.
pub(crate) fn has_local_ended() -> bool {
    let ended = |shared: &Shared| shared.config.facade.is_local && shared.is_stopping();
    entered::with_current(ended).unwrap_or(false)
}

/// As [`local_home`], of this runtime.
pub(crate) fn home_of_local(shared: &Shared) -> Option<Home> {
    if !shared.config.facade.is_local {
        return None;
    }
    let workers = shared.workers.load();
    let worker = workers.first()?;
    // The queue is bound to the thread that has built the runtime.
    worker.owner().pinned.bind().then(|| Home::pinned(worker))
}

impl Shared {
    /// Cancels all tasks, if the runtime was built so, after a task of it has panicked on the
    /// calling thread. `block_on` panics as soon as it finds that this was done.
    #[cold]
    pub(crate) fn task_panicked(&self) {
        if !self.config.facade.unhandled_panic.shuts_down() {
            return;
        }
        // A blocking thread is no worker. tokio ignores the panics of blocking jobs, too.
        with_local_of(self, |local| {
            let Some(local) = local else { return };
            self.has_panicked.store(true, Relaxed);
            // No more are taken, and those that wait are queued.
            each_or(self.tasks.close(), |task| task.wake(), forget);
            drop_tasks(self, local);
        });
    }
}

/// Drops all tasks in the queues of a current-thread runtime.
fn drop_tasks(shared: &Shared, local: &Local) {
    let mut others = Vec::new();
    let own = || local.next_for_any().or_else(|| shared.take_injected());
    let pinned = || local.shard.owner().pinned.take().map(Job::Task);
    // A task that is dropped may wake others.
    for job in iter::from_fn(|| own().or_else(pinned)) {
        match job {
            Job::Task(task) => each_or([task], drop, forget),
            job => others.push(job),
        }
    }
    // Callbacks of other groups go back to the queues of these.
    others.into_iter().for_each(|job| local.queue(job));
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::mpsc,
    };

    use super::*;
    use crate::{runtime::Builder, task::Group, time::sleep};

    /// On a paused clock the order of jobs depends on the program alone. A hundred callbacks are
    /// due together with the panic, and a turn has no more than eight jobs of its group.
    #[test]
    fn callbacks_stay_in_their_group_when_a_panic_ends_all_tasks() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut builder = Builder::new_current_thread();
        builder.start_paused(true);
        let mut options = Options::DEFAULT;
        options.unhandled_panic = UnhandledPanic::ShutdownRuntime;
        options.set(&mut builder);
        let runtime = builder.build().unwrap();
        let batch = Group::builder("batch").build_on(runtime.handle()).unwrap();
        let (sender, jobs) = mpsc::channel();
        let callback = || {
            let sender = sender.clone();
            let name = || Group::current().unwrap().name().to_owned();
            (SECOND, move || sender.send(name()).unwrap())
        };
        let timers = batch.sync_scope(|| runtime.handle().after_many((0..100).map(|_| callback())));
        let panicked = sender.clone();
        runtime.spawn(async move {
            sleep(SECOND).await;
            panicked.send("panic".to_owned()).unwrap();
            panic!("ends all tasks");
        });
        let end = || runtime.block_on(std::future::pending::<()>());
        catch_unwind(AssertUnwindSafe(end)).unwrap_err();
        let jobs: Vec<_> = jobs.try_iter().collect();
        let after = jobs.iter().skip_while(|job| *job != "panic").skip(1);
        let after: Vec<_> = after.collect();
        assert!(!after.is_empty(), "no callback ran after it: {jobs:?}");
        assert!(after.iter().all(|group| *group == "batch"), "{after:?}");
        drop(timers);
    }
}
