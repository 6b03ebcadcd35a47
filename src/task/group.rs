//! Groups of tasks that divide the workers' time by shares.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    engine::{
        context::{group, group::InGroup, placement::Choice},
        groups::{self, GroupId, Options},
        handle::Handle,
    },
    error::GroupError,
    metrics::spawned::Spawned,
    task::{join::JoinHandle, spawn_in},
    util::nanos::nanos,
};

/// A group of tasks. The groups of a runtime divide the time of its workers by their shares.
///
/// Without groups a worker runs its tasks in turn, so a thousand tasks that compress leave little
/// time to one that answers. A group for the thousand, and shares, say how much they may take while
/// others have work. A group takes all the time that the others leave.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tourbillon::task::{Group, yield_now};
///
/// let runtime = tourbillon::Runtime::new()?;
/// let _entered = runtime.enter();
/// // A third of the time while the default group has work, which has 100 shares.
/// let batch = Group::builder("batch").shares(50).build()?;
/// let compressed = batch.spawn(async {
///     // What a task spawns belongs to its group.
///     tourbillon::spawn(yield_now()).await.unwrap();
///     42
/// });
/// assert_eq!(runtime.block_on(compressed)?, 42);
/// # Ok(())
/// # }
/// ```
///
/// # What is in a group
///
/// A task that no group spawned is in the group of the task or callback that spawned it, or in the
/// *default group*, which has 100 shares; see [`Builder::default_group`]. It stays in its group for
/// life: whatever wakes it, a timer or a socket, it waits in the queue of its group. So does the
/// callback of a timer, which is in the group of the task or callback that armed it. A task that is
/// [pinned](crate::task::spawn_pinned) to a worker waits there, and takes turns with the jobs of
/// its group that any worker may run. To arm a timer or pin a task in another group, do it in a
/// [`sync_scope`](Group::sync_scope).
///
/// The default group also has
///
/// - the future of `block_on`, on whose turn the worker looks after 61 jobs at most, and
/// - callbacks that are told at the end of the runtime, or because it was full.
///
/// What these make is in the default group, too. Tasks of a [`LocalSet`](crate::task::LocalSet)
/// run while the set is polled, so their time is that of the task that polls it. Jobs of
/// [`spawn_blocking`](crate::task::spawn_blocking) have threads of their own, and no shares, but
/// may have a [bound](GroupBuilder::max_blocking_threads); what they spawn is in the group of the
/// task that spawned them.
///
/// # How the time is divided
///
/// Each worker measures the time of each job, and divides it by the shares of the job's group. The
/// group with work for which this gave the least has the next turn: 100 µs, or less if it runs out
/// of work, or if a group has a [`latency_goal`](GroupBuilder::latency_goal). A group that had no
/// work for a while has the next turn, and no credit beyond that. A worker never interrupts a job,
/// so a turn is as long as its last job. Between two jobs it also looks at timers and sockets, if a
/// turn has passed since it last did.
///
/// A worker looks after each job which group is next, and reads the clock for that. This begins
/// with the first group, and costs the jobs of all groups some 30 ns. The tasks of a group wait in
/// one queue, from which all workers take, and the tasks of the default group in one for each
/// worker, which costs less. So leave the kind of work in the default group that has the most and
/// the shortest jobs.
///
/// A runtime has at most 31 groups beside the default one. A group stays until the runtime has
/// ended. [`RuntimeMetrics::groups`](crate::metrics::RuntimeMetrics::groups) has the time and the
/// queue of each.
///
/// [`Builder::default_group`]: crate::runtime::Builder::default_group
#[derive(Clone)]
pub struct Group {
    handle: Handle,
    id: GroupId,
}

impl Group {
    /// Returns a builder of a group with this name.
    pub fn builder(name: &str) -> GroupBuilder {
        GroupBuilder {
            options: Options::named(name),
        }
    }

    /// Returns the group of the calling task or callback, or `None` if the calling thread is in no
    /// runtime.
    ///
    /// If no group was made, this makes the default one.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// use tourbillon::task::Group;
    ///
    /// let batch = Group::builder("batch").build().unwrap();
    /// let name = batch.spawn(async { Group::current().unwrap().name().to_owned() });
    /// assert_eq!(name.await.unwrap(), "batch");
    /// assert_eq!(Group::current().unwrap().name(), "default");
    /// # });
    /// ```
    pub fn current() -> Option<Self> {
        let handle = Handle::try_current().ok()?;
        let id = group::current(handle.shared());
        handle.shared().make_groups();
        Some(Self { handle, id })
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        self.group().name()
    }

    /// Returns the shares of the group.
    pub fn shares(&self) -> u32 {
        self.group().shares()
    }

    /// Sets the shares of the group. They count from the next job of each worker on.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let batch = tourbillon::task::Group::builder("batch").build().unwrap();
    /// batch.set_shares(10).unwrap();
    /// assert_eq!(batch.shares(), 10);
    /// assert!(batch.set_shares(0).is_err());
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`GroupError::Shares`] unless `shares` is from 1 to 10,000.
    pub fn set_shares(&self, shares: u32) -> Result<(), GroupError> {
        self.group().set_shares(shares)
    }

    /// Spawns a task in the group, on the runtime of the group.
    ///
    /// It is otherwise like [`Handle::spawn`]. On a runtime that has been shut down the task is
    /// cancelled at once.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let spawned = Spawned::here();
        self.handle
            .with_home(Choice::InTurn, |home| {
                spawn_in(home, self.id, future, spawned)
            })
            .unwrap_or_else(|_| JoinHandle::cancelled())
    }

    /// Runs a future that puts what it spawns and arms into the group.
    ///
    /// The task that polls the future stays in its own group, to which its time counts. To run the
    /// future itself in the group, [spawn](Group::spawn) it.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// use tourbillon::task::Group;
    ///
    /// let batch = Group::builder("batch").build().unwrap();
    /// let spawned = batch.scope(async { tourbillon::spawn(async { Group::current() }) });
    /// let group = spawned.await.await.unwrap();
    /// assert_eq!(group.unwrap().name(), "batch");
    /// # });
    /// ```
    pub fn scope<F: IntoFuture>(&self, future: F) -> Scope<F::IntoFuture> {
        Scope {
            future: future.into_future(),
            group: self.clone(),
        }
    }

    /// Runs a function that puts what it spawns and arms into the group: [`scope`](Group::scope)
    /// without a future.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// use tourbillon::task::{Group, JoinSet};
    ///
    /// let batch = Group::builder("batch").build().unwrap();
    /// let mut set = JoinSet::new();
    /// batch.sync_scope(|| set.spawn(async { Group::current().unwrap().name().to_owned() }));
    /// assert_eq!(set.join_next().await.unwrap().unwrap(), "batch");
    /// # });
    /// ```
    pub fn sync_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        let _group = InGroup::enter(self.handle.shared(), self.id);
        f()
    }

    fn group(&self) -> &groups::Group {
        self.handle.shared().make_groups().get(self.id)
    }
}

/// Two groups are equal if they are the same group of the same runtime.
impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        (self.handle.id(), self.id) == (other.handle.id(), other.id)
    }
}

impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("name", &self.name())
            .field("shares", &self.shares())
            .finish_non_exhaustive()
    }
}

/// Makes a [`Group`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds a group"]
pub struct GroupBuilder {
    pub(crate) options: Options,
}

impl GroupBuilder {
    /// Sets the shares of the group, from 1 to 10,000. The default is 100.
    ///
    /// Among the groups that have work, each gets as large a part of the time as it has of their
    /// shares.
    pub fn shares(mut self, shares: u32) -> Self {
        self.options.shares = shares;
        self
    }

    /// Sets for how long the jobs of other groups may keep a worker between two looks whether this
    /// group has work, beyond the job that runs. The default is 100 µs.
    ///
    /// It bounds the turns of all groups, and the time between two looks at timers and sockets. It
    /// does not raise the group's share: a group that takes more than its share waits.
    pub fn latency_goal(mut self, goal: Duration) -> Self {
        self.options.latency_goal = nanos(goal);
        self
    }

    /// Sets how many [blocking threads](crate::task::spawn_blocking) the jobs of the group may hold
    /// at once. Without this there is only the runtime's
    /// [bound](crate::runtime::Builder::max_blocking_threads).
    ///
    /// More jobs wait until one of the group has ended, first come, first served, and leave the
    /// other threads to other groups. A job that waits for another job of its group may wait
    /// forever. Look-ups of names (`TcpStream::connect(("name", 80))`) are such jobs, too.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// use tourbillon::task::{Group, spawn_blocking};
    ///
    /// let batch = Group::builder("batch").max_blocking_threads(2).build().unwrap();
    /// let square = |n| batch.sync_scope(|| spawn_blocking(move || n * n));
    /// let squares: Vec<_> = (0..8_usize).map(square).collect();
    /// for (n, square) in squares.into_iter().enumerate() {
    ///     assert_eq!(square.await.unwrap(), n * n);
    /// }
    /// # });
    /// ```
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.options.max_blocking_threads = Some(threads);
        self
    }

    /// Makes the group on the runtime that the calling thread is in.
    ///
    /// # Errors
    ///
    /// Returns a [`GroupError`] if the thread is in no runtime, if the runtime has a group of this
    /// name or 31 groups beside the default one, or if an option has an invalid value.
    pub fn build(&self) -> Result<Group, GroupError> {
        let handle = Handle::try_current().map_err(|_| GroupError::NoRuntime)?;
        self.build_on(&handle)
    }

    /// Makes the group on the runtime of a handle.
    ///
    /// # Errors
    ///
    /// As [`build`](GroupBuilder::build).
    pub fn build_on(&self, handle: &Handle) -> Result<Group, GroupError> {
        let id = handle.shared().make_group(&self.options)?;
        let handle = handle.clone();
        Ok(Group { handle, id })
    }
}

/// The future of [`Group::scope`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Scope<F> {
    future: F,
    group: Group,
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _group = InGroup::enter(self.group.handle.shared(), self.group.id);
        // SAFETY: `future` is pinned whenever `self` is: it is never moved out of a pinned `Scope`,
        // there is no Drop, and Unpin is derived from the fields.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        future.poll(cx)
    }
}
