//! A cloneable reference to a runtime, by which any thread uses it. What it does for tasks, timers,
//! clocks and reports is in files `handle.rs` of these modules.

use std::{
    fmt,
    future::Future,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    engine::{
        block_on,
        config::RuntimeFlavor,
        context::{
            entered,
            entered::EnterGuard,
            placement::{Choice, HomeError, with_home_of},
        },
        core::WorkerShard,
        id::Id,
        shared::Shared,
    },
    error::{NO_RUNTIME, NoRuntime, WorkersError},
};

/// A reference to a [`Runtime`](crate::runtime::Runtime). Any thread may spawn tasks and arm timers
/// through it.
///
/// A handle is cheap to clone. It does not keep the runtime running.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns a handle to the runtime that the calling thread is in.
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime; see [`try_current`](Handle::try_current).
    #[track_caller]
    pub fn current() -> Self {
        match Self::try_current() {
            Ok(handle) => handle,
            Err(NoRuntime) => panic!("{NO_RUNTIME}"),
        }
    }

    /// Returns a handle to the runtime that the calling thread is in, or an error.
    ///
    /// # Errors
    ///
    /// Returns [`NoRuntime`] if the thread is in no runtime.
    pub fn try_current() -> Result<Self, NoRuntime> {
        entered::current().map(Self::new).ok_or(NoRuntime)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the number of the runtime. All handles of a runtime return the same one, and no
    /// other runtime of the process has it, before or after.
    ///
    /// ```
    /// use tourbillon::{Handle, Runtime};
    ///
    /// let (one, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    /// assert_ne!(one.handle().id(), other.handle().id());
    /// assert_eq!(one.block_on(async { Handle::current().id() }), one.handle().id());
    /// ```
    pub fn id(&self) -> Id {
        self.shared.id
    }

    /// Returns the [name](crate::runtime::Builder::name) of the runtime, or `None` if it has none.
    pub fn name(&self) -> Option<&str> {
        self.shared.config.name.as_deref()
    }

    /// Returns which threads run the tasks and timers of the runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// use tourbillon::runtime::{Builder, RuntimeFlavor};
    ///
    /// let runtime = Builder::new_current_thread().build()?;
    /// assert_eq!(runtime.handle().runtime_flavor(), RuntimeFlavor::CurrentThread);
    /// # Ok(())
    /// # }
    /// ```
    pub fn runtime_flavor(&self) -> RuntimeFlavor {
        self.shared.config.flavor
    }

    /// Sets how many workers take part, from one to as many as the runtime was built with. The
    /// others are *retired* until a later call. This returns at once; the workers follow at
    /// their next look at timers and sockets, which comes after at most
    /// [`event_interval`](crate::runtime::Builder::event_interval) jobs.
    ///
    /// A retired worker runs no task and no callback that another worker could run, and uses no
    /// processor time while nothing comes. It keeps its timers and sockets, and hands on to the
    /// others what these make ready. New ones go to workers that take part. Tasks that are
    /// [pinned](crate::task::Builder::spawn_pinned) to it still run on it, and what these arm and
    /// register stays there: so do the connections of a listener for each core. If a worker that
    /// takes part is stuck, that is, in one job for longer than the
    /// [rescue latency](crate::runtime::Builder::rescue_latency), a retired one takes part in its
    /// place until the job is over. So set a longer latency if jobs are often that long.
    ///
    /// Use it if the process gets less processor time than it was started with, for example in a
    /// container that is resized: more threads that run than the limit allows make the kernel stop
    /// all of them. Build the runtime with as many workers as it may ever use. A runtime that
    /// [follows the limits](crate::runtime::Builder::follow_limits) does this by itself; of its
    /// number and the one that was set here, the smaller one counts.
    ///
    /// Once the runtime's clock was [paused](Handle::pause_clock), all workers take part.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(4).build()?;
    /// runtime.handle().set_workers(1)?;
    /// assert_eq!(runtime.metrics().active_workers(), 1);
    /// assert_eq!(runtime.block_on(runtime.spawn(async { 7 }))?, 7);
    /// runtime.handle().set_workers(4)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`WorkersError`] if `workers` is zero, or more than the runtime was built with.
    pub fn set_workers(&self, workers: usize) -> Result<(), WorkersError> {
        let most = self.shared.recorders.len();
        match workers {
            0 => return Err(WorkersError::Zero),
            asked if asked > most => return Err(WorkersError::TooMany { asked, most }),
            _ => self.shared.limit_by_hand(workers),
        }
        Ok(())
    }

    /// Returns a handle that does not keep the memory of a runtime that has ended, for caches and
    /// exporters that outlive runtimes.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let weak = runtime.handle().downgrade();
    /// assert_eq!(weak.upgrade().unwrap().id(), runtime.handle().id());
    /// drop(runtime);
    /// assert!(weak.upgrade().is_none());
    /// ```
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.shared))
    }

    /// Enters the runtime: until the guard is dropped, what this thread spawns and arms goes to
    /// this runtime.
    ///
    /// If the thread enters several runtimes, the one that it entered last counts.
    pub fn enter(&self) -> EnterGuard<'_> {
        entered::enter(&self.shared)
    }

    /// Runs `f` with the shard for a timer, socket or task of the calling thread. If the thread is
    /// a worker of this runtime it is the worker's own shard, otherwise one that `choice` selects.
    pub(crate) fn with_home<R>(
        &self,
        choice: Choice,
        f: impl FnOnce(&Arc<WorkerShard>) -> R,
    ) -> Result<R, HomeError> {
        with_home_of(&self.shared, choice, f)
    }

    /// Runs a future to completion on the calling thread, in the context of this runtime; see
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on).
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is a worker, or if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        entered::assert_may_block();
        // What the future arms and spawns goes to this runtime.
        let _entered = self.enter();
        block_on::drive(&self.shared, future)
    }

    /// Returns how long ago the runtime was built. Moments of [snapshots](crate::flight::Snapshot)
    /// and [polls](crate::task::PollTimes) count from there.
    ///
    /// Like them, it does not follow a clock that is or was [paused](crate::time::pause).
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.shared.clock.real())
    }

    /// Returns whether the runtime has begun to shut down. From then on it accepts no tasks and no
    /// timers.
    pub fn is_shut_down(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Waits until the runtime has ended: it was shut down, and its workers have returned.
    ///
    /// This is for tasks of other runtimes. A task of this runtime is dropped before.
    ///
    /// ```
    /// use tourbillon::{Runtime, runtime::Builder};
    ///
    /// # fn main() -> Result<(), tourbillon::BuildError> {
    /// let inspected = Runtime::new()?;
    /// let observer = Builder::new_current_thread().build()?;
    /// let handle = inspected.handle().clone();
    /// drop(inspected);
    /// observer.block_on(handle.ended());
    /// assert!(handle.is_shut_down());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(&self) {
        self.shared.lifecycle.ended().await;
    }
}

// A panic of the caller leaves nothing half done: shared state changes under locks, in which no
// user code runs, or by single atomic steps.
impl UnwindSafe for Handle {}
impl RefUnwindSafe for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.shared.workers.load().len();
        f.debug_struct("Handle")
            .field("workers", &workers)
            .finish_non_exhaustive()
    }
}

/// A [`Handle`] that does not keep the memory of its runtime. See [`Handle::downgrade`].
#[derive(Clone)]
pub struct WeakHandle(Weak<Shared>);

impl WeakHandle {
    /// Returns a handle, or `None` if the runtime and all of its handles are gone.
    pub fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle::new)
    }
}

impl UnwindSafe for WeakHandle {}
impl RefUnwindSafe for WeakHandle {}

impl fmt::Debug for WeakHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(WeakHandle)")
    }
}
