//! What is called in a task, around its future, and what it does to the books.

use std::{any::type_name, marker::PhantomData};

use tourbillon_tasks::{Policy, Task, TaskRef, Woken};

use super::{TaskMeta, id};
use crate::runtime::{self, Order, TaskJob};

/// Where a task goes that was woken.
pub(super) trait Schedule: 'static {
    fn schedule(task: TaskJob, woken: Woken);

    /// Returns the name of a task whose future is an `F`.
    fn name<F>() -> &'static str {
        type_name::<F>()
    }
}

/// Any worker of its runtime may run it.
pub(super) struct AnyWorker;

impl Schedule for AnyWorker {
    #[inline]
    fn schedule(task: TaskJob, woken: Woken) {
        let order = match woken {
            Woken::Waiting => Order::Next,
            Woken::WhileRunning => Order::Last,
        };
        runtime::schedule(task, order);
    }
}

/// A task that is in the books of its home.
pub(super) struct Registered<S>(PhantomData<S>);

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
        meta.home().within(|| id::within(meta.id(), poll));
    }

    /// The thread may be in no runtime: the one that shuts it down, for example.
    fn dropping(meta: &TaskMeta, drop: impl FnOnce()) {
        let home = meta.home();
        home.inside(|| home.within(|| id::within(meta.id(), drop)));
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
