//! The hooks that run around a task's future, and where a woken task is queued.

use std::{alloc::Layout, any::type_name, marker::PhantomData, ptr::NonNull};

use tourbillon_tasks::{Policy, Task, TaskRef, Woken};

use crate::{
    engine::{
        context::{entered, group::InGroup},
        groups::GroupId,
        job::{Order, TaskJob},
        task_core::{home::Home, id, meta::TaskMeta},
    },
    task::local::context::Within,
};

/// Decides where a task is queued that was woken.
pub(crate) trait Schedule: 'static {
    /// What tokio-console calls such tasks.
    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    const KIND: &'static str = "task";

    fn schedule(task: TaskJob, woken: Woken);

    /// Returns the name of a task whose future is an `F`.
    fn name<F>() -> &'static str {
        type_name::<F>()
    }
}

/// Queues the task for any worker of its runtime.
pub(crate) struct AnyWorker;

impl Schedule for AnyWorker {
    #[inline]
    fn schedule(task: TaskJob, woken: Woken) {
        // Most tasks that are woken while they run yield: they go behind the others. A task that
        // waited runs next, because the data of its wake-up is in the cache.
        let order = match woken {
            Woken::Waiting => Order::Next,
            Woken::WhileRunning => Order::Last,
        };
        crate::engine::shared::schedule(task, order);
    }
}

/// The policy of all tasks of a runtime: they are in the registry of their home, and `S` queues
/// them.
pub(crate) struct Registered<S>(PhantomData<S>);

impl<S: Schedule> Policy for Registered<S> {
    type Metadata = TaskMeta;

    #[inline]
    fn schedule(task: TaskJob, woken: Woken) {
        #[cfg(all(feature = "facade", tokio_unstable))]
        crate::engine::facade::note_queued(&task);
        S::schedule(task, woken);
    }

    fn name<F>() -> &'static str {
        S::name::<F>()
    }

    // Tasks come and go like their timers, often from one thread to another. See
    // `crates/pool/DESIGN.md`.
    #[inline]
    unsafe fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the same contract.
        unsafe { tourbillon_pool::alloc(layout) }.as_ptr()
    }

    #[inline]
    unsafe fn dealloc(memory: *mut u8, layout: Layout) {
        // SAFETY: by contract it is from `alloc`, which returns no null, and is not used any more.
        unsafe { tourbillon_pool::dealloc(NonNull::new_unchecked(memory), layout) };
    }

    #[inline]
    fn polling(meta: &TaskMeta, poll: impl FnOnce()) {
        within(meta.home(), || id::within(meta.id(), poll));
    }

    /// Enters the task's runtime if the thread is in none, as the thread that shuts it down may be.
    fn dropping(meta: &TaskMeta, drop: impl FnOnce()) {
        let home = meta.home();
        // Destructors find the same runtime, local context and task number as the task did.
        inside(home, || within(home, || id::within(meta.id(), drop)));
    }

    fn dropping_output(meta: &TaskMeta, drop: impl FnOnce()) {
        id::within(meta.id(), drop);
    }

    #[inline]
    fn pending(task: &Task<TaskMeta>) {
        let meta = task.metadata();
        // A task is listed when it first waits. From then on it stays listed until it ends.
        if meta.place().is_nowhere() {
            meta.wait(task);
        }
    }

    #[inline]
    fn ended(meta: &TaskMeta) -> Option<TaskRef<TaskMeta>> {
        let listed = meta.leave();
        #[cfg(feature = "facade")]
        crate::engine::facade::tell_ended(meta.home(), meta.id(), meta.spawned());
        meta.home().count_ended();
        listed
    }

    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    fn waker_called(meta: &TaskMeta, call: tourbillon_tasks::WakerCall) {
        crate::task::traced::waker_called(meta, call);
    }

    fn traced(meta: &TaskMeta) {
        // The tasks of a `LocalSet` are not traced.
        if let Some(shared) = meta.home().shared() {
            shared.flight.traces.waits(meta.id());
        }
    }

    fn panicked(meta: &TaskMeta) {
        meta.home().count_panic();
    }

    #[cfg(feature = "facade")]
    fn poll_panicked(meta: &TaskMeta) {
        Self::panicked(meta);
        meta.home().task_panicked();
    }
}

/// Runs `f`, which polls or drops the future of a task of `home`, in the local context and in the
/// group of `home`.
#[inline]
fn within<R>(home: &Home, f: impl FnOnce() -> R) -> R {
    // There is only one call of `f`, so that it is inlined here. A task of the default group that
    // any worker may run pays only for one comparison.
    let _within = (!home.is_plain()).then(|| Inside::begin(home));
    f()
}

/// The context of a task that only one thread runs, or that is in a group, until it is dropped.
struct Inside<'a> {
    _within: Option<Within<'a>>,
    _group: Option<InGroup>,
}

impl<'a> Inside<'a> {
    fn begin(home: &'a Home) -> Self {
        let shared = home.shared().filter(|_| home.group() != GroupId::DEFAULT);
        Self {
            _within: home.is_local().then(|| Within::begin(home)),
            _group: shared.map(|shared| InGroup::enter(shared, home.group())),
        }
    }
}

/// Runs `f`, which drops the future of a task of `home`. If the calling thread is in no runtime, it
/// enters that of the task.
fn inside<R>(home: &Home, f: impl FnOnce() -> R) -> R {
    match home.shared() {
        Some(shared) => entered::within(shared, f),
        None => f(),
    }
}
