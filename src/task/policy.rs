//! What is called in a task, around its future, and what it does to the books.

use std::{any::type_name, marker::PhantomData};

use tourbillon_tasks::{Policy, Task, TaskRef, Woken};

use crate::{
    engine::{
        context::entered,
        job::{Order, TaskJob},
        task_core::{home::Home, meta::TaskMeta},
    },
    task::{id, local::context::Within},
};

/// Where a task goes that was woken.
pub(crate) trait Schedule: 'static {
    fn schedule(task: TaskJob, woken: Woken);

    /// Returns the name of a task whose future is an `F`.
    fn name<F>() -> &'static str {
        type_name::<F>()
    }
}

/// Any worker of its runtime may run it.
pub(crate) struct AnyWorker;

impl Schedule for AnyWorker {
    #[inline]
    fn schedule(task: TaskJob, woken: Woken) {
        let order = match woken {
            Woken::Waiting => Order::Next,
            Woken::WhileRunning => Order::Last,
        };
        crate::engine::shared::schedule(task, order);
    }
}

/// A task that is in the books of its home.
pub(crate) struct Registered<S>(PhantomData<S>);

impl<S: Schedule> Policy for Registered<S> {
    type Metadata = TaskMeta;

    #[inline]
    fn schedule(task: TaskJob, woken: Woken) {
        S::schedule(task, woken);
    }

    fn name<F>() -> &'static str {
        S::name::<F>()
    }

    #[inline]
    fn polling(meta: &TaskMeta, poll: impl FnOnce()) {
        within(&meta.home(), || id::within(meta.id(), poll));
    }

    /// The thread may be in no runtime: the one that shuts it down, for example.
    fn dropping(meta: &TaskMeta, drop: impl FnOnce()) {
        let home = meta.home();
        inside(&home, || within(&home, || id::within(meta.id(), drop)));
    }

    fn dropping_output(meta: &TaskMeta, drop: impl FnOnce()) {
        id::within(meta.id(), drop);
    }

    #[inline]
    fn pending(task: &Task<TaskMeta>) {
        let meta = task.metadata();
        if meta.place().is_nowhere() {
            meta.wait(task);
        }
    }

    #[inline]
    fn ended(meta: &TaskMeta) -> Option<TaskRef<TaskMeta>> {
        let listed = meta.leave();
        meta.home().count_ended();
        listed
    }

    fn panicked(meta: &TaskMeta) {
        meta.home().count_panic();
    }
}

/// Runs `f`, which polls or drops the future of a task of `home`.
#[inline]
fn within<R>(home: &Home, f: impl FnOnce() -> R) -> R {
    // One call of `f`, which is inlined here: a task that any worker runs pays for one comparison.
    let _within = home.is_local().then(|| Within::begin(home));
    f()
}

/// Runs `f`, which drops the future of a task of `home`, in the context of its runtime if the calling
/// thread is in none.
fn inside<R>(home: &Home, f: impl FnOnce() -> R) -> R {
    match home.shared() {
        Some(shared) => entered::inside(shared, f),
        None => f(),
    }
}
