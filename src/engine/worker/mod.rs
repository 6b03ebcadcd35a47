//! The loop of a worker: run what is queued, fire what is due, look at the sockets, search, sleep.

use std::{any::Any, cell::RefCell, sync::Arc, task::Waker};

use crossbeam::deque;
use tourbillon_shards::{Due, Kind, NEVER, Ran, TypeName, prefetch};

#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace;
use crate::{
    engine::{
        clocks,
        core::{Core, TimerOwner, WorkerShard},
        job::Job,
        local,
        local::Local,
        shared::Shared,
        shutdown,
        telemetry::lateness,
        watchdog::{
            report,
            rescue::{Awaited, RESCUED, Rest},
            stall::Stall,
            watch::InLoop,
        },
        worker::{
            search::Search,
            tidy::Tidy,
            wait_policy::{WaitPolicy, WakeLatency},
        },
    },
    reactor::CLOCK_TOKENS,
    sys::epoll::{Events, Timeout},
    util::budget,
};

pub(crate) mod pace;
mod park;
pub(crate) mod search;
pub(crate) mod tidy;
pub(crate) mod wait_policy;

/// How many timers are taken from the shard at a time, and queued before the jobs get their turn. So many that the misses
/// of what is fetched for them overlap, and so few that it is still in the cache when it is its turn: of 56, and as many
/// again at each look at the sockets, most was not. (The deque has room for them when it is small: it is given another
/// buffer each time that it grows or shrinks.) The rest wait in the shard, in their order, and what sockets and tasks
/// bring is not behind all of them.
const DUE_BATCH: usize = 16;
/// How many are taken at a time at most, however many jobs have run: the shard is locked meanwhile.
pub(crate) const DUE_MOST: usize = 256;
/// How much of what a waker leads to is fetched before it is woken, in bytes: of a task of ours, what is known of it
/// and a small future.
const TASK_BYTES: usize = 256;
/// Room for the events of one look at the sockets.
const EVENTS: usize = 256;

/// A worker, on its thread.
pub(crate) struct Worker<'a> {
    pub(crate) local: &'a Local,
    pub(crate) core: &'a Core,
    pub(crate) shared: &'a Shared,
    /// Jobs run so far.
    pub(crate) tick: u64,
    /// The number of jobs, of those to come, before which it looks at what comes from outside: the next multiple of the interval, or
    /// the present one. (It was computed, which takes a division for each job.)
    outside_at: u64,
    /// When the timers and sockets were last looked at.
    looked: u64,
    /// How many timers were taken since then.
    taken: u64,
    /// When this worker was last in its loop.
    pub(crate) in_loop: InLoop,
    /// Whether this worker counts as a searcher, and whom it has asked.
    pub(crate) search: Search,
    /// Timers that were taken from a shard, on their way to the deque.
    pub(crate) due: Vec<Due<Core>>,
    pub(crate) events: RefCell<Events>,
    pub(crate) wakers: Vec<Waker>,
    /// Workers whose alarms went off.
    pub(crate) called: Vec<usize>,
    /// What is to be reported of those that were found awake, by their numbers.
    pub(crate) stalls: Vec<(usize, Stall)>,
    /// What is to be told of what was taken from them.
    #[cfg(feature = "tracing")]
    pub(crate) rescues: Vec<trace::Rescue>,
    /// Whether one of them is at the same job as before.
    pub(crate) found_stuck: bool,
    /// What was taken from the epoll instance of one of them.
    pub(crate) others_events: Events,
    rest: Rest,
    wait_policy: WaitPolicy,
    /// How late it comes when an alarm calls it.
    pub(crate) called_late: WakeLatency,
    /// What it waits for awake that others have who do not come by.
    pub(crate) awaited: Vec<Awaited>,
    pub(crate) tidy: Tidy,
}

/// Runs the worker of `shard` on this thread, until the runtime stops.
pub(crate) fn run(shard: Arc<WorkerShard>, deque: deque::Worker<Job>) {
    let shared = shard.owner().shared.clone();
    let local = run_as(&shard, deque, |worker| {
        // Before the first job, as after each sleep.
        shared.stand_by();
        // A callback's panic is caught where it runs. What may still come here are panics of
        // foreign destructors and wakers: the worker goes on with the next job.
        while !shared.is_stopping() {
            worker.core.contain(|| worker.run());
        }
    });
    drop(local);
    drop(shard);
    shutdown::leave(&shared);
}

/// Runs `main` as the loop of a worker, or of a helper, and ends what there is to be ended if that is
/// because the runtime stops.
pub(crate) fn run_as(
    shard: &Arc<WorkerShard>,
    deque: deque::Worker<Job>,
    main: impl FnOnce(&mut Worker<'_>),
) -> Local {
    let shared = shard.owner().shared.clone();
    let hook = |hook: &Option<crate::engine::config::Hook>| {
        if let Some(hook) = hook {
            shard.owner().contain(|| hook());
        }
    };
    // A helper's shard has no timers.
    let _spares = (!shard.owner().is_helper).then(|| shard.keep_spares());
    let local = Local::new(shard.clone(), deque);
    local::with_worker(&local, || {
        shard.beat(shared.clock.now());
        hook(&shared.config.on_thread_start);
        let mut worker = Worker::new(&local, &shared);
        main(&mut worker);
        for timer in std::mem::take(&mut worker.due) {
            worker.core.contain(|| drop(timer));
        }
        if shared.is_stopping() {
            // It does not come by any more: from now on all workers end together what each has.
            shard.dismiss();
            shutdown::end(&local);
        }
        hook(&shared.config.on_thread_stop);
    });
    local
}

impl<'a> Worker<'a> {
    fn new(local: &'a Local, shared: &'a Shared) -> Self {
        let core = local.shard.owner();
        Self {
            local,
            core,
            shared,
            tick: 0,
            outside_at: 0,
            looked: 0,
            taken: 0,
            in_loop: InLoop::at(shared.clock.real(), 0),
            search: Search::beginning_at(core.index),
            due: Vec::with_capacity(RESCUED),
            events: RefCell::new(Events::with_capacity(EVENTS)),
            wakers: Vec::with_capacity(EVENTS),
            called: Vec::new(),
            stalls: Vec::new(),
            #[cfg(feature = "tracing")]
            rescues: Vec::new(),
            found_stuck: false,
            others_events: Events::with_capacity(EVENTS),
            rest: Rest::default(),
            wait_policy: WaitPolicy::new(&shared.config),
            called_late: WakeLatency::default(),
            awaited: Vec::new(),
            tidy: Tidy::default(),
        }
    }

    pub(crate) fn run(&mut self) {
        // Should a task's destructor have panicked.
        budget::end();
        while !self.shared.is_stopping() {
            let is_time = self.run_queued();
            self.core.watchdog.watch.end();
            if is_time {
                self.look();
                continue;
            }
            // Told to stop during the last job, it does not look for another.
            let fired = self.fire_due();
            if (fired && self.local.has_jobs()) || self.shared.is_stopping() {
                continue;
            }
            match self.search() {
                Some(job) => self.execute(job),
                // Sleeps of other threads, or nothing but news: that makes no jobs to be counted, and
                // a flood of it must not keep the sockets waiting.
                None if fired => {
                    self.was_away();
                    self.look_at_sockets();
                }
                None if self.core.is_helper => {
                    self.was_away();
                    return;
                }
                None if self.is_near() => self.spin(),
                None if self.search.lingers() => self.linger(),
                // A part of what there is to do, and a look at all that may have come meanwhile.
                None if self.tidies() => self.spin(),
                None => self.park(),
            }
        }
        // Told to stop while it was kept from its loop.
        self.core.watchdog.watch.end();
        self.was_away();
    }

    /// Runs what is queued here, until nothing is or it is time to look at timers and sockets; true
    /// if it is.
    fn run_queued(&mut self) -> bool {
        let interval = u64::from(self.shared.config.event_interval);
        while self.tick - self.looked < interval {
            let Some(job) = self.next() else { return false };
            self.execute(job);
            if self.shared.is_stopping() {
                return false;
            }
        }
        true
    }

    fn next(&mut self) -> Option<Job> {
        if self.tick == self.outside_at {
            if let Some(job) = self.shared.queues.steal() {
                if self.local.has_queued() {
                    // Nobody was woken for what this worker was about to run.
                    self.shared.wake_one();
                }
                return Some(job);
            }
        }
        self.local.next()
    }

    fn execute(&mut self, job: Job) {
        if self.tick == self.outside_at {
            self.outside_at += u64::from(self.shared.config.global_queue_interval);
        }
        self.tick += 1;
        if self.search.is_on {
            // Before the job, which may take long: while we count as a searcher, nobody is woken.
            self.found();
        }
        match job {
            Job::Task(task) => {
                let name = TypeName::from_fn(task.name());
                let spawned = task.metadata().spawned();
                self.core
                    .watchdog
                    .watch
                    .begin(self.tick, name, Some(spawned));
                self.core.recorder.own.polls.add_alone(1);
                budget::begin();
                task.run();
                budget::end();
            }
            Job::Timer(due) if lateness::is_looked_at(&due) => self.fire_looking(due),
            Job::Timer(due) => _ = self.fire(due, || self.shared.clock.now()),
            // Asked of recurring timers, which these clocks have none of.
            Job::ClockTimer(due) => _ = self.fire(due, || NEVER),
            // Told there and then, if it is to be.
            Job::Skipped(due) => {
                self.begin_callback(due.type_name());
                self.core.contain(|| due.cancel());
            }
            Job::Notice(notice) => {
                self.begin_callback(notice.type_name());
                self.ran(notice.run());
            }
            Job::ClockNotice(notice) => {
                self.begin_callback(notice.type_name());
                self.ran(notice.run());
            }
        }
    }

    /// True if it has run.
    #[inline]
    pub(crate) fn fire<O: TimerOwner>(&self, due: Due<O>, now: impl FnOnce() -> u64) -> bool {
        self.begin_callback(due.type_name());
        #[cfg(feature = "tracing")]
        let _span = trace::callback(self.core, &due);
        match due.run(now) {
            Ran::Fired => self.ran(None),
            Ran::Panicked(panic) => self.ran(Some(panic)),
            Ran::PutBack | Ran::Over => return false,
        }
        true
    }

    #[inline]
    fn begin_callback(&self, name: &'static TypeName) {
        self.core.watchdog.watch.begin(self.tick, name, None);
    }

    /// Counts a callback that has run, and has panicked with this.
    #[inline]
    fn ran(&self, panicked: Option<Box<dyn Any + Send>>) {
        let counters = &self.core.recorder.own;
        counters.callbacks.add_alone(1);
        if let Some(panic) = panicked {
            counters.panics.add_alone(1);
            // The panic hook has reported it.
            self.core.contain(|| drop(panic));
        }
    }

    /// Looks at timers and sockets without waiting.
    fn look(&mut self) {
        self.was_away();
        self.fire_due();
        (self.looked, self.taken) = (self.tick, 0);
        self.look_at_sockets();
        self.tidies();
    }

    /// The worker is back in its loop.
    pub(crate) fn was_away(&mut self) {
        let last = self.in_loop;
        report::was_away(self.core, &mut self.in_loop, self.tick);
        let (jobs, took) = self.in_loop.since(last);
        self.local.pace.note(jobs, took);
        self.core.was_busy(last.at, self.in_loop.at);
    }

    fn look_at_sockets(&mut self) {
        self.beat(self.in_loop.at);
        self.core.wait(self.events.get_mut(), Timeout::Zero);
        self.harvest(false);
        self.take_up();
    }

    /// Queues the callbacks, and wakes the tasks, whose deadlines have passed. True if there may be
    /// something to run now, or more to take.
    fn fire_due(&mut self) -> bool {
        let shard = &self.local.shard;
        // On a clock by hand what may be late is late: who looks at the timers between two jumps is
        // not to see them run.
        let next = if self.shared.clock.was_paused() {
            shard.next_deadline()
        } else {
            shard.soonest()
        };
        if !shard.has_news() && (next == NEVER || next > self.shared.clock.now()) {
            return false;
        }
        // As much as there is room for in the deque; and no less than jobs have run since the last look that were no timers, or
        // jobs that never end would keep timers waiting.
        let room = DUE_BATCH.saturating_sub(self.local.deque.len()).max(1);
        let jobs = (self.tick - self.looked).saturating_sub(self.taken);
        let limit = room.max(usize::try_from(jobs).map_or(DUE_MOST, |jobs| jobs.min(DUE_MOST)));
        let (now, first) = (self.shared.clock.now(), self.due.len());
        let more = shard.expire(now, limit, &mut self.due).more;
        self.taken += (self.due.len() - first) as u64;
        self.note_late(first, now);
        let any = !self.due.is_empty();
        self.queue_due();
        if more && !any {
            // There is much to read in the inbox; or another thread has the shard, for the length of
            // a batch at most.
            crate::sys::sync::thread::yield_now();
        }
        any || more
    }

    /// Queues the callbacks, and wakes the tasks, that were taken.
    pub(crate) fn queue_due(&mut self) {
        if self.due.is_empty() {
            return;
        }
        let (core, local) = (self.core, self.local);
        let (due, wakers) = (&mut self.due, &mut self.wakers);
        local.batch(|| {
            for timer in due.drain(..) {
                match timer.kind() {
                    // First all fire that are in a row, then their tasks are woken: those are cold, and
                    // on their way to the cache meanwhile.
                    Kind::Sleep => {
                        if let Some(waker) = timer.fire() {
                            prefetch(waker.data(), TASK_BYTES);
                            if wakers.len() == wakers.capacity() {
                                // Those of a rescue: see `RESCUED`.
                                wake_all(core, wakers);
                            }
                            wakers.push(waker);
                        }
                    }
                    _ => {
                        if !wakers.is_empty() {
                            wake_all(core, wakers);
                        }
                        local.deque.push(Job::Timer(timer));
                    }
                }
            }
            wake_all(core, wakers);
        });
    }

    /// Queues what is due on the clocks whose timerfds are readable.
    pub(crate) fn serve_clocks(&self, events: &Events) {
        if !events
            .iter()
            .any(|event| CLOCK_TOKENS.contains(&event.token()))
        {
            return;
        }
        for (clock, token) in self.shared.clocks.all().iter().zip(CLOCK_TOKENS) {
            if !events.iter().any(|event| event.token() == token) {
                continue;
            }
            let due = clocks::serve(clock, &self.core.recorder.late.wake);
            self.local.batch(|| {
                for job in due {
                    self.local.deque.push(job);
                }
            });
        }
    }

    /// Queues and wakes what was taken, which runs foreign code.
    pub(crate) fn take_up(&mut self) {
        self.queue_due();
        self.wake_tasks();
        self.report_stalls();
        #[cfg(feature = "tracing")]
        while let Some(rescue) = self.rescues.pop() {
            trace::rescue(self.core, rescue);
        }
    }

    /// Takes what the events are about into its hands, and runs none of it: as long as this worker has
    /// an alarm or a clock to see to, nobody else does. `slept`: the events ended its sleep.
    pub(crate) fn harvest(&mut self, slept: bool) {
        self.answer_alarms(slept);
        self.serve_clocks(&self.events.borrow());
        self.core
            .reactor
            .dispatch(self.events.get_mut(), &mut self.wakers);
    }

    /// Wakes those that were found to wait.
    fn wake_tasks(&mut self) {
        if !self.wakers.is_empty() {
            let (core, wakers) = (self.core, &mut self.wakers);
            self.local.batch(|| wake_all(core, wakers));
        }
    }
}

/// Wakes them, and foreign wakers may panic.
fn wake_all(core: &Core, wakers: &mut Vec<Waker>) {
    let mut wakers = wakers.drain(..);
    while wakers.len() > 0 {
        // All in one go, and another for those behind one that panics.
        core.contain(|| wakers.by_ref().for_each(Waker::wake));
    }
}
