//! The state that all operations share.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use tourbillon::{Handle, JoinHandle, sync::Notify, task::Group};
use tourbillon_sim::raw::{self as sim, below};

use crate::{acts::Armed, ledger::tally, plan::Plan, work::Work};

const MS: u64 = 1_000_000;
/// The minimum time between two blocking callbacks, so that only one at a time needs help.
const REST: u64 = 60 * MS;

/// The state that all operations share.
pub struct Cast {
    pub plan: Plan,
    pub handle: Handle,
    pub timers: Mutex<Vec<Arc<Armed>>>,
    pub tasks: Mutex<Vec<JoinHandle<u64>>>,
    /// The tasks of a scene of work.
    pub works: Mutex<Vec<Work>>,
    /// How many tasks and timers that scene has.
    pub spawned: AtomicU64,
    pub notify: Notify,
    /// Some of the tasks are in these groups.
    groups: Vec<Group>,
    blocks: AtomicBool,
    may_block: AtomicU64,
    /// Set when no new operations may begin.
    pub over: AtomicBool,
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cast {
    pub fn new(plan: Plan, handle: Handle) -> Arc<Self> {
        let group = |(name, shares, threads)| {
            let builder = Group::builder(name).shares(shares);
            let builder = builder.max_blocking_threads(threads);
            builder.build_on(&handle).expect("the options are right")
        };
        let groups = match plan.groups {
            true => [("small", 10, 1), ("large", 300, 2)].map(group).into(),
            false => Vec::new(),
        };
        Arc::new(Self {
            plan,
            handle,
            timers: Mutex::default(),
            tasks: Mutex::default(),
            works: Mutex::default(),
            spawned: AtomicU64::new(0),
            notify: Notify::new(),
            groups,
            blocks: AtomicBool::new(false),
            may_block: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// Spawns a task, in a group or not.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.in_group(|| self.handle.spawn(future))
    }

    /// Calls `f`, and puts what it spawns into a group or not.
    pub fn in_group<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.groups.is_empty() {
            return f();
        }
        match self.groups.get(below(3) as usize) {
            Some(group) => group.sync_scope(f),
            None => f(),
        }
    }

    pub fn delay(&self) -> u64 {
        match below(12) {
            0 => 0,
            1..4 => below(100_000),
            4..8 => below(5 * MS),
            8..11 => below(self.plan.horizon / 2),
            _ if below(4) == 0 => 100 * 365 * 86_400 * 1_000 * MS,
            _ => below(self.plan.horizon * 2),
        }
    }

    pub fn any(&self) -> Option<Arc<Armed>> {
        let timers = lock(&self.timers);
        let count = timers.len() as u64;
        (count > 0).then(|| timers[below(count) as usize].clone())
    }

    pub fn keep_task(&self, task: JoinHandle<u64>) {
        lock(&self.tasks).push(task);
    }

    pub fn any_task(&self) -> Option<JoinHandle<u64>> {
        let mut tasks = lock(&self.tasks);
        let count = tasks.len() as u64;
        (count > 0).then(|| tasks.swap_remove(below(count) as usize))
    }

    /// Sets now and then how many workers take part, if the plan says so.
    pub fn maybe_limit(&self) {
        if self.plan.limits && below(3) == 0 {
            let workers = 1 + below(self.plan.workers as u64) as usize;
            let set = self.handle.set_workers(workers);
            set.expect("the runtime was built with so many");
        }
    }

    /// Blocks the worker now and then, as a blocking callback does.
    pub fn maybe_block(&self) {
        let chance = u64::from(self.plan.blocks);
        if chance == 0 || below(1_000) >= chance || sim::now() < self.may_block.load(Relaxed) {
            return;
        }
        if self.over.load(Relaxed) || self.blocks.swap(true, Relaxed) {
            return;
        }
        let (least, most) = self.plan.block_ns;
        let length = least + below(most - least);
        let from = sim::now();
        sim::note(|| format!("blocks for {length} ns"));
        let place = tally(|tally| {
            tally.blocks.push((from, from + length + MS));
            tally.blocks.len() - 1
        });
        sim::block(length);
        let to = sim::now();
        tally(|tally| tally.blocks[place].1 = to);
        self.may_block.store(to + REST, Relaxed);
        self.blocks.store(false, Relaxed);
    }
}
