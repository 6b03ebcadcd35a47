//! The loop of a worker: run queued jobs, fire due timers, poll the sockets, search, park.
//!
//! One turn of [`Worker::run`]:
//!
//! ```text
//!     ┌─> run queued jobs ──── `event_interval` jobs have run ───> fire, poll ─┐
//!     │         │ the queues are empty                                         │
//!     │         v                                                              │
//!     │       fire ──────────── a due timer became a job ──────────────────────┤
//!     │         │ nothing is due                                               │
//!     │         v                                                              │
//!     │       search ────────── a job came from the injector or a peer ────────┤
//!     │         │ nothing found                                                │
//!     │         v                                                              │
//!     │       spin or park, then fire and poll ────────────────────────────────┤
//!     └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - *Run* executes jobs of the LIFO slot, the deque and the pinned tasks (`execute.rs`).
//! - *Fire* takes due timers out of the worker's shard. A callback becomes a job in the deque. A
//!   sleep wakes its task, which becomes a job too (`fire.rs`).
//! - *Poll* asks epoll for ready sockets, for the alarms of stuck peers, and for clocks that have
//!   run out, without waiting (`events.rs`). On a current-thread runtime it also comes before a
//!   task that has yielded runs again.
//! - *Search* takes jobs from the injector and from the deques of peers (`search.rs`).
//! - *Park* waits in epoll until the next deadline, an event, or a wake-up by another thread
//!   (`park.rs`).
//!
//! A worker that does not return to its loop is rescued by a peer: see `watchdog/rescue.rs`.

use std::{cell::RefCell, sync::Arc, task::Waker};

use crossbeam::deque;
use tourbillon_shards::{Due, Spares};
use tourbillon_sync::Patience;

#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace;
use crate::{
    engine::{
        core::{Core, WorkerShard},
        groups::turns::Turns,
        job::Job,
        local,
        local::Local,
        paused::state::Blocked,
        recorder::note::Notes,
        shared::Shared,
        shutdown,
        watchdog::{rescue::RESCUED, rest::Rest, seen::InLoop},
        worker::{
            follow::NextLook, retire::Duty, search::Search, tidy::Tidy, wait_policy::WaitPolicy,
        },
    },
    sys::{self, epoll::Events, sync::atomic::Ordering},
    util::{budget, nanos::nanos},
};

#[cfg(test)]
mod denied_tests;
mod events;
mod execute;
pub(crate) mod fire;
pub(crate) mod follow;
pub(crate) mod pace;
mod park;
pub(crate) mod ration;
pub(crate) mod retire;
pub(crate) mod search;
mod shares;
pub(crate) mod tidy;
mod turn;
pub(crate) mod wait_policy;

/// How many events one poll of the sockets can return.
const EVENTS: usize = 256;

/// A worker, on its own thread.
pub(crate) struct Worker<'a> {
    pub(crate) local: &'a Local,
    pub(crate) core: &'a Core,
    pub(crate) shared: &'a Shared,
    /// The number of the job that runs, or ran last. The next one has the next number.
    pub(crate) tick: u64,
    /// The value of `tick` at which the worker takes its next job from the injector. It is kept
    /// here because computing it takes a division for each job.
    injector_at: u64,
    /// The value of `tick` at the last poll of timers and sockets.
    last_poll: u64,
    /// How many jobs may run between two polls. Zero if the next poll is due, whatever has run.
    interval: u64,
    /// How much time may pass between two polls, in ns.
    poll_within: u64,
    /// Whether this is the worker of a current-thread runtime.
    is_single: bool,
    /// How many timers were taken since that poll.
    timers_since_poll: u64,
    /// What the clock showed when the worker last looked whether timers are due, in ns.
    fired_at: u64,
    /// When this worker was last in its loop.
    pub(crate) in_loop: InLoop,
    /// When this worker last read the clock between two jobs, if it times each.
    pub(crate) timed: InLoop,
    /// When this worker last looked at its sockets and timers.
    pub(crate) looked: InLoop,
    /// In a `block_on` of a current-thread runtime: the state of that call. The loop returns when
    /// its future is woken.
    pub(crate) root: Option<Arc<Blocked>>,
    /// Whether this worker takes part in the work that any worker may do.
    pub(crate) duty: Duty,
    /// The state of the search for work: whether this worker counts as a searcher, and which peer
    /// is next.
    pub(crate) search: Search,
    /// Timers that were taken from a shard and are not yet in the deque.
    pub(crate) due: Vec<Due<Core>>,
    pub(crate) events: RefCell<Events>,
    pub(crate) wakers: Vec<Waker>,
    /// Numbers of the workers whose alarms went off.
    pub(crate) alarms: Vec<usize>,
    /// Numbers of the workers that this one follows and that have events.
    pub(crate) followed: Vec<usize>,
    /// Numbers of the workers whose stalls are to be reported. The hook runs later, in
    /// [`take_up`](Self::take_up).
    pub(crate) stalls: Vec<usize>,
    /// Rescues to trace, also in `take_up`.
    #[cfg(feature = "tracing")]
    pub(crate) rescues: Vec<trace::Rescue>,
    /// Whether a worker that was checked is at the same job as at the last check.
    pub(crate) found_stuck: bool,
    /// Events from the epoll instance of a stuck peer.
    pub(crate) peer_events: Events,
    rest: Rest,
    wait_policy: Box<WaitPolicy>,
    pub(crate) tidy: Tidy,
    /// When the worker looks at what the system allows.
    next_look: NextLook,
    /// The processor time of this thread, in ns, when it last napped to keep to the CPU quota.
    rationed_at: u64,
    /// How often in a row another thread had the lock of the worker's shard.
    patience: Patience,
    /// The same, for the shards of workers that lean on this one.
    mates_patience: Patience,
    /// What the worker remembers for the flight recorder.
    pub(crate) notes: Notes,
    /// The turns of the groups, once the runtime has some.
    turns: Option<Box<Turns>>,
}

/// What the only worker of a current-thread runtime keeps from one `block_on` to the next: what it
/// has learned of its sleeps, and memory.
pub(crate) struct Kept {
    wait_policy: Box<WaitPolicy>,
    /// Empty.
    due: Vec<Due<Core>>,
    /// Empty.
    wakers: Vec<Waker>,
    /// Those of the last wait. Each wait begins without any.
    events: Events,
}

/// Runs the worker of `shard` on this thread, until the runtime stops.
pub(crate) fn run(shard: Arc<WorkerShard>, deque: deque::Worker<Job>) {
    let shared = shard.owner().shared.clone();
    let local = Local::new(shard.clone(), deque);
    run_as(&local, |worker| {
        // As after each sleep: user code may block this worker, so a helper must be in reserve.
        shared.ensure_reserve();
        // Panics of callbacks and tasks are caught where those run. Panics of user destructors and
        // wakers end up here; the worker then goes on with its next job.
        while !shared.is_stopping() {
            worker.core.contain(|| worker.run());
        }
        // The turn that the stop has ended, which may be the only one.
        let now = shared.clock.real();
        worker.core.was_busy(worker.in_loop.at, now);
    });
    drop(local);
    drop(shard);
    shutdown::leave(&shared);
}

/// Makes this thread the worker or helper of `local`, and runs `main` as its loop.
///
/// If the loop ends because the runtime stops, this function also takes part in the shutdown.
/// Otherwise `local` still has the jobs that are left.
pub(crate) fn run_as<R>(local: &Local, main: impl FnOnce(&mut Worker<'_>) -> R) -> R {
    let shard = &local.shard;
    let shared = shard.owner().shared.clone();
    let hook = |hook: &Option<crate::engine::config::Hook>| {
        // The thread of a `block_on` is the user's: the runtime neither starts nor stops it.
        if let Some(hook) = hook.as_ref().filter(|_| !shared.is_current_thread()) {
            shard.owner().contain(|| hook());
        }
    };
    // A helper's shard has no timers, so a helper needs no cache of reference counts.
    let _spares = (!shard.owner().is_helper).then(|| Spares::new(shard));
    let run = || {
        shard
            .owner()
            .thread
            .store(sys::thread_id() as u32, Ordering::Relaxed);
        #[cfg(all(feature = "facade", tokio_unstable))]
        {
            let recorder = &shard.owner().recorder;
            recorder.unstable.set_thread(std::thread::current().id());
        }
        // Set the alarm before the hook, which is user code and may block.
        shard.beat(shared.clock.now());
        hook(&shared.config.on_thread_start);
        let mut worker = Worker::new(local, &shared);
        let output = main(&mut worker);
        // A stop of the runtime or a panic may have ended the loop between taking timers and wakers
        // and queueing them. Tasks of the runtime end in the shutdown, but a task of another
        // thread, as of a `LocalSet`, would wait for ever: no one else has its waker.
        if !worker.due.is_empty() {
            worker.core.contain_each(worker.due.drain(..), drop);
        }
        wake_all(worker.core, &mut worker.wakers);
        if shared.is_stopping() {
            // The worker no longer fires its timers. From here on, all workers together drop what
            // each of them has left.
            shard.dismiss();
            shutdown::end(local);
        }
        hook(&shared.config.on_thread_stop);
        if worker.is_single {
            local.kept.set(Some(Kept {
                wait_policy: worker.wait_policy,
                due: worker.due,
                wakers: worker.wakers,
                events: worker.events.into_inner(),
            }));
        }
        output
    };
    local::with_worker(local, || shared.around_polls(run))
}

impl<'a> Worker<'a> {
    pub(crate) fn new(local: &'a Local, shared: &'a Shared) -> Self {
        let core = local.shard.owner();
        // Room for one whole rescue, which must not wait for memory. The only worker of a
        // current-thread runtime rescues none.
        let (due, wakers) = match shared.is_current_thread() {
            true => (0, 0),
            false => (RESCUED, EVENTS),
        };
        let events = || match shared.is_current_thread() {
            true => Events::new(EVENTS),
            false => Events::new(EVENTS).reserve(),
        };
        let kept = local.kept.take().unwrap_or_else(|| {
            let spent = shared
                .group(core.index)
                .map(|(group, _)| group.spent.clone());
            let mut wait_policy = Box::new(WaitPolicy::new(&shared.config, spent));
            // A quota may forbid to wait awake from the first sleep on.
            wait_policy.set_spin(&shared.config, shared.limits.may_spin());
            Kept {
                wait_policy,
                due: Vec::with_capacity(due),
                wakers: Vec::with_capacity(wakers),
                events: events(),
            }
        });
        // The thread before this one, as in an earlier `block_on`, has left its last job there. Go
        // on with the numbers: the label of one of its jobs must not be that of another one.
        let tick = core.watchdog.watch.begun();
        let in_loop = InLoop::at(shared.clock.real(), tick);
        Self {
            local,
            core,
            shared,
            tick,
            // The first look goes to the injector: a new worker has nothing of its own.
            injector_at: tick,
            last_poll: tick,
            interval: u64::from(shared.config.event_interval),
            poll_within: nanos(shared.config.rescue_latency) / 4,
            is_single: shared.is_current_thread(),
            timers_since_poll: 0,
            fired_at: 0,
            in_loop,
            timed: in_loop,
            looked: in_loop,
            root: None,
            duty: Duty::Active,
            search: Search::beginning_at(core.index),
            due: kept.due,
            events: RefCell::new(kept.events),
            wakers: kept.wakers,
            alarms: Vec::new(),
            followed: Vec::new(),
            stalls: Vec::new(),
            #[cfg(feature = "tracing")]
            rescues: Vec::new(),
            found_stuck: false,
            peer_events: events(),
            rest: Rest::default(),
            wait_policy: kept.wait_policy,
            tidy: Tidy::default(),
            next_look: NextLook::new(shared, core.is_helper),
            rationed_at: 0,
            patience: Patience::default(),
            mates_patience: Patience::default(),
            notes: Notes::default(),
            turns: None,
        }
    }

    /// Runs the loop until the runtime stops, or, on a helper, until no work is left. In a
    /// `block_on` of a current-thread runtime, it takes one turn at least, and returns when the
    /// future of `block_on` is woken.
    pub(crate) fn run(&mut self) {
        // A panic in a task's destructor may have skipped the end of its budget.
        budget::end();
        // Whether the future of `block_on` has yielded. It is in no queue: poll once the queues are
        // empty.
        let mut looks = self.is_single && budget::took_yield();
        while !self.shared.is_stopping() {
            self.follow_limit();
            let is_time = self.run_queued() || looks;
            looks = false;
            self.core.watchdog.watch.end();
            if is_time {
                self.look();
                if self.root_is_woken() {
                    break;
                }
                continue;
            }
            // 1. The queues are empty. Due timers come before the jobs of others. (If the runtime
            //    stops, `run_queued` also returns here, and the worker looks for no other job.)
            let fired = self.fire_due();
            if self.root_is_woken() {
                break;
            }
            // A retired worker would hand them on, and take the next ones, without a poll between.
            if (fired && self.has_jobs() && !self.is_retired()) || self.shared.is_stopping() {
                continue;
            }
            // 2. This worker has nothing to do. A job of a peer or of the injector comes first.
            match self.search() {
                Some(job) => {
                    self.note_unwatched_jobs();
                    self.begin_found(&job);
                    self.execute(job);
                    continue;
                }
                // The timers that fired, or the updates that were read, made no jobs. Jobs are what
                // brings the next poll, so poll here: a flood of updates must not starve the
                // sockets.
                None if fired => {
                    self.back_in_loop();
                    self.look_at_sockets();
                }
                // A helper ends as soon as there is no work: it has no timers or sockets to wait
                // for.
                None if self.core.is_helper => {
                    self.back_in_loop();
                    return;
                }
                // What the system allows may have changed. Then poll all that has come meanwhile.
                None if self.looks_at_limits() => self.spin(),
                // 3. The next deadline is so near that a sleep would cost more than the wait.
                None if self.is_near() => self.spin(),
                // A peer was left its only job: look again in a moment.
                None if self.search.lingers() => self.linger(),
                // Return one part of the unused memory, then poll all that may have come meanwhile.
                None if self.tidies() => self.spin(),
                // The process has used more than its CPU quota pays for, and has slept meanwhile.
                None if self.keeps_to_ration() => self.spin(),
                // 4. Sleep until the next deadline, an event, or a wake-up.
                None => self.park(),
            }
            // The future of `block_on` comes before the tasks that the same poll has woken.
            if self.root_is_woken() {
                break;
            }
        }
        // The runtime stopped during a job: that job is over for the watchdog, too.
        self.core.watchdog.watch.end();
        self.back_in_loop();
    }

    /// Returns whether the future of this thread's `block_on` was woken, or `block_on` must end
    /// because a task has panicked.
    #[inline]
    pub(crate) fn root_is_woken(&self) -> bool {
        let root = self.root.as_ref();
        root.is_some_and(|root| root.is_woken() || self.shared.has_panicked())
    }

    /// Runs queued jobs until the queues are empty or it is time to poll timers and sockets.
    /// Returns `true` if it is time to poll.
    fn run_queued(&mut self) -> bool {
        if self.is_retired() {
            self.leave_search();
            return self.run_each(Self::next_pinned);
        }
        self.run_each(Self::next)
    }

    /// Runs the jobs that `next` returns, until it returns none or it is time to poll. Returns
    /// `true` if it is time to poll.
    // Always inlined, so that the loop calls `next` directly.
    #[inline(always)]
    fn run_each(&mut self, next: impl Fn(&mut Self) -> Option<Job>) -> bool {
        // Sockets and timers must not wait behind an endless row of jobs.
        while self.tick - self.last_poll < self.interval {
            let Some(job) = next(self) else {
                return self.interval == 0;
            };
            self.execute(job);
            if self.shared.is_stopping() {
                return false;
            }
            if self.is_single && budget::took_yield() {
                // The task that has yielded is the last one in the queue.
                self.look_after(self.local.queued().saturating_sub(1));
            }
        }
        true
    }

    /// Makes the next poll come after at most that many jobs: those that are queued before a task
    /// that has yielded. A task that yields in a loop waits for what it polls, which may be an
    /// event that only this thread takes from epoll.
    #[cold]
    fn look_after(&mut self, jobs: usize) {
        let ran = self.tick - self.last_poll;
        self.interval = self.interval.min(ran + jobs as u64);
    }

    /// Returns the next job: now and then one from the injector, otherwise one of the worker's own.
    fn next(&mut self) -> Option<Job> {
        if let Some(groups) = self.shared.task_groups.table() {
            return self.next_in_groups(groups);
        }
        if self.tick == self.injector_at && !self.shared.queues.is_empty() {
            // The injected job runs before this worker's own ones, for which no peer may have been
            // woken. No wake-up is needed here: the thread that injected the job has woken a
            // searcher, or relies on one. Once the job is gone, the searcher finds the others.
            if let Some(job) = self.shared.queues.steal() {
                return Some(job);
            }
        }
        let own = self.local.next();
        if own.is_none() && self.root.is_some() {
            // The future of `block_on` comes before a search. If it yields, tasks that were spawned
            // or woken from outside run first.
            return self.shared.queues.steal();
        }
        own
    }

    /// Fires due timers and polls the sockets, without waiting.
    fn look(&mut self) {
        self.back_in_loop();
        // Before all that comes due during a nap.
        self.keeps_to_ration();
        self.fire_due();
        (self.last_poll, self.timers_since_poll) = (self.tick, 0);
        // Workers may have retired since the last look at the injector.
        let interval = u64::from(self.shared.injector_interval());
        self.injector_at = self.injector_at.min(self.tick + interval);
        self.look_at_sockets();
        self.tidies();
        self.looks_at_limits();
    }
}

/// Wakes all `wakers`. A user's waker may panic.
fn wake_all(core: &Core, wakers: &mut Vec<Waker>) {
    if !wakers.is_empty() {
        core.contain_each(wakers.drain(..), Waker::wake);
    }
}
