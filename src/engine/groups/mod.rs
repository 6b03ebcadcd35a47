//! Scheduling groups: tasks that share the workers' time by shares. See `docs/internals/groups.md`.
//!
//! A runtime has up to [`MOST`] groups. They are made while it runs, and stay until its end. The
//! table of groups is made with the first one: until then it costs each worker one look at a word
//! for each job.
//!
//! Each group but the default one has one queue, from which all workers take: tasks that are
//! ready, and callbacks of timers that are due. Those of the default group are in the slots, the
//! deques and the injector, as if there were no groups. Pinned tasks wait at their worker
//! (`engine/task_core/local_queue.rs`).

pub(crate) mod turns;

use std::sync::OnceLock;

use crossbeam::{deque::Injector, utils::CachePadded};

use crate::{
    engine::{job::Job, queues::steal},
    error::GroupError,
    metrics::{counters::Counter, label::Label, parts::GroupMetrics},
    sys::sync::{
        Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
        point,
    },
    util::lock::lock,
};

/// The most groups of a runtime, with the default group. A task has five bits for its group.
pub(crate) const MOST: usize = 32;
/// The shares of a group that was given none.
pub(crate) const DEFAULT_SHARES: u32 = 100;
/// The most shares of a group.
pub(crate) const MOST_SHARES: u32 = 10_000;

/// The number of a group in its runtime, below [`MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupId(u8);

impl GroupId {
    /// The group of all that was given none.
    pub(crate) const DEFAULT: Self = Self(0);
    /// The bits of a timer's tag that have the number of its group.
    pub(crate) const TAG: u32 = MOST as u32 - 1;

    /// Returns the group with this number. `index` is below [`MOST`].
    #[inline]
    pub(crate) fn new(index: usize) -> Self {
        debug_assert!(index < MOST);
        Self(index as u8)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the tag of a timer whose callback is in this group.
    pub(crate) fn tag(self) -> u32 {
        self.0.into()
    }

    /// Returns the group that the tag of a timer says.
    pub(crate) fn of_tag(tag: u32) -> Self {
        Self((tag & Self::TAG) as u8)
    }
}

/// What a user says about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) shares: u32,
    /// How long the jobs of other groups may keep a worker while this group waits, in ns.
    pub(crate) latency_goal: u64,
    /// How many threads the group's blocking jobs may hold. `None`: no fewer than there may be.
    pub(crate) max_blocking_threads: Option<usize>,
}

impl Options {
    /// Returns the options of a group with this name, and else the defaults.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            shares: DEFAULT_SHARES,
            latency_goal: u64::MAX,
            max_blocking_threads: None,
        }
    }

    /// Checks that each option has a valid value.
    pub(crate) fn check(&self) -> Result<(), GroupError> {
        if self.name.trim().is_empty() {
            return Err(GroupError::EmptyName);
        }
        check_shares(self.shares)?;
        if self.latency_goal == 0 {
            return Err(GroupError::ZeroLatencyGoal);
        }
        if self.max_blocking_threads == Some(0) {
            return Err(GroupError::ZeroBlockingThreads);
        }
        Ok(())
    }
}

/// Checks that a group may have so many shares.
pub(crate) fn check_shares(asked: u32) -> Result<(), GroupError> {
    match asked {
        1..=MOST_SHARES => Ok(()),
        _ => Err(GroupError::Shares {
            asked,
            most: MOST_SHARES,
        }),
    }
}

/// The groups of a runtime.
pub(crate) struct Groups {
    table: OnceLock<Box<Table>>,
    /// Held by a thread that makes a group.
    making: Mutex<()>,
}

/// The groups of a runtime that has some. The first one is the default group.
pub(crate) struct Table {
    groups: [OnceLock<Group>; MOST],
    /// How many of them there are. It only grows.
    made: AtomicUsize,
}

/// One group.
pub(crate) struct Group {
    name: Box<str>,
    /// The name, for the reports of jobs.
    label: Label,
    shares: AtomicU32,
    /// See [`Options::latency_goal`].
    latency_goal: u64,
    /// See [`Options::max_blocking_threads`]. The pool reads that of the default group in the
    /// runtime's options: it counts without a table, too.
    pub(crate) max_blocking_threads: Option<usize>,
    /// The jobs that are ready. Unused in the default group.
    queue: CachePadded<Injector<Job>>,
    /// What each worker has run. The last one is that of all helpers.
    counts: Box<[CachePadded<Counts>]>,
}

/// What a thread has run of a group.
#[derive(Default)]
struct Counts {
    jobs: Counter,
    busy_ns: Counter,
}

impl Groups {
    /// Creates a runtime's groups, of which none is made.
    pub(crate) fn new() -> Self {
        Self {
            table: OnceLock::new(),
            making: Mutex::new(()),
        }
    }

    /// Returns the groups, or `None` until one is made.
    #[inline]
    pub(crate) fn table(&self) -> Option<&Table> {
        self.table.get().map(|table| &**table)
    }

    /// Returns the groups, and makes the default one if there is none. The runtime has `workers`
    /// workers.
    pub(crate) fn make_table(&self, default: &Options, workers: usize) -> &Table {
        self.table.get_or_init(|| {
            let table = Table {
                groups: [const { OnceLock::new() }; MOST],
                made: AtomicUsize::new(1),
            };
            table.groups[0].get_or_init(|| Group::new(default, workers));
            Box::new(table)
        })
    }

    /// Makes a group. `default` are the options of the default group, and the runtime has
    /// `workers` workers.
    pub(crate) fn make(
        &self,
        options: &Options,
        default: &Options,
        workers: usize,
    ) -> Result<GroupId, GroupError> {
        options.check()?;
        let _making = lock(&self.making);
        let table = self.make_table(default, workers);
        if table.iter().any(|group| *group.name == *options.name) {
            let name = options.name.clone();
            return Err(GroupError::NameTaken { name });
        }
        let index = table.made.load(Ordering::Relaxed);
        let Some(place) = table.groups.get(index) else {
            return Err(GroupError::TooMany { most: MOST - 1 });
        };
        place.get_or_init(|| Group::new(options, workers));
        // A thread that sees this count sees the group.
        table.made.store(index + 1, Ordering::Release);
        Ok(GroupId::new(index))
    }

    /// Returns whether a job waits in the queue of a group.
    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        self.table().is_some_and(Table::has_work)
    }

    /// Takes a job out of the queue of any group.
    pub(crate) fn take(&self) -> Option<Job> {
        self.table()?.iter().find_map(Group::take)
    }

    /// Returns how many jobs wait in the queues of the groups.
    #[cfg(tourbillon_sim)]
    pub(crate) fn queued(&self) -> usize {
        let table = self.table().into_iter();
        table.flat_map(Table::iter).map(Group::queued).sum()
    }
}

impl Table {
    /// Returns the groups, the default one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        // A thread that has the number of a group sees at least so many: it has the number from the
        // thread that made the group.
        let made = self.made.load(Ordering::Acquire);
        self.groups[..made].iter().filter_map(OnceLock::get)
    }

    /// Returns how many groups there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// Returns a group. The caller has its number from the thread that made it.
    #[inline]
    pub(crate) fn get(&self, id: GroupId) -> &Group {
        let group = self.groups[id.index()].get();
        group.expect("its number is known once it is made")
    }

    /// Returns whether a job waits in the queue of a group.
    pub(crate) fn has_work(&self) -> bool {
        self.iter().any(|group| group.has_work())
    }

    /// Returns the shortest latency goal of a group, in ns.
    pub(crate) fn latency_goal(&self) -> u64 {
        let goals = self.iter().map(|group| group.latency_goal);
        goals.min().unwrap_or(u64::MAX)
    }
}

impl Group {
    fn new(options: &Options, workers: usize) -> Self {
        Self {
            name: options.name.as_str().into(),
            label: Label::new(&options.name),
            shares: AtomicU32::new(options.shares),
            latency_goal: options.latency_goal,
            max_blocking_threads: options.max_blocking_threads,
            queue: CachePadded::new(Injector::new()),
            counts: (0..=workers).map(|_| CachePadded::default()).collect(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn label(&self) -> Label {
        self.label
    }

    pub(crate) fn shares(&self) -> u32 {
        self.shares.load(Ordering::Relaxed)
    }

    /// Sets the shares, from which each worker counts from its next job on.
    pub(crate) fn set_shares(&self, shares: u32) -> Result<(), GroupError> {
        check_shares(shares)?;
        self.shares.store(shares, Ordering::Relaxed);
        Ok(())
    }

    /// Queues a job. The caller then wakes a worker.
    pub(crate) fn push(&self, job: Job) {
        self.queue.push(job);
    }

    /// Takes the job that has waited for longest.
    pub(crate) fn take(&self) -> Option<Job> {
        steal(|| self.queue.steal())
    }

    /// Returns whether a job waits.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        point();
        !self.queue.is_empty()
    }

    /// Returns how many jobs wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Counts a job of `ns` ns by the thread with this index. From the number of workers on, these
    /// are helpers.
    pub(crate) fn count(&self, index: usize, ns: u64) {
        let helpers = self.counts.len() - 1;
        if index < helpers {
            let counts = &self.counts[index];
            counts.jobs.add_alone(1);
            counts.busy_ns.add_alone(ns);
        } else {
            let counts = &self.counts[helpers];
            counts.jobs.add(1);
            counts.busy_ns.add(ns);
        }
    }

    /// Returns what has run of the group. `queued` is the number of its jobs that wait elsewhere
    /// than in its queue.
    pub(crate) fn metrics(&self, queued: usize) -> GroupMetrics {
        let sum = |of: fn(&Counts) -> &Counter| self.counts.iter().map(|it| of(it).get()).sum();
        GroupMetrics {
            name: self.name.as_ref().into(),
            shares: self.shares(),
            jobs: sum(|counts| &counts.jobs),
            busy_ns: sum(|counts| &counts.busy_ns),
            queued: queued + self.queued(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(groups: &Groups, name: &str) -> Result<GroupId, GroupError> {
        groups.make(&Options::named(name), &Options::named("default"), 2)
    }

    #[test]
    fn there_is_no_table_without_a_group() {
        let groups = Groups::new();
        assert!(groups.table().is_none() && !groups.have_work());
        assert!(make(&groups, " ").is_err());
        assert!(groups.table().is_none());
        assert_eq!(make(&groups, "batch"), Ok(GroupId::new(1)));
        let table = groups.table().unwrap();
        let names: Vec<_> = table.iter().map(Group::name).collect();
        assert_eq!(names, ["default", "batch"]);
    }

    #[test]
    fn there_are_as_many_groups_as_a_task_has_bits_for() {
        let groups = Groups::new();
        for index in 1..MOST {
            assert_eq!(make(&groups, &index.to_string()), Ok(GroupId::new(index)));
        }
        let refused = Err(GroupError::TooMany { most: MOST - 1 });
        assert_eq!(make(&groups, "one more"), refused);
        assert_eq!(groups.table().unwrap().len(), MOST);
    }

    #[test]
    fn a_name_belongs_to_one_group() {
        let groups = Groups::new();
        make(&groups, "batch").unwrap();
        for name in ["batch", "default"] {
            let refused = GroupError::NameTaken { name: name.into() };
            assert_eq!(make(&groups, name), Err(refused));
        }
    }

    #[test]
    fn the_jobs_of_helpers_are_added_up() {
        let group = Group::new(&Options::named("batch"), 2);
        (0..5).for_each(|index| group.count(index, 10));
        let metrics = group.metrics(3);
        assert_eq!((metrics.jobs, metrics.busy_ns, metrics.queued), (5, 50, 3));
    }
}
