//! Hooks of tasks.

use std::{marker::PhantomData, panic::Location, sync::Arc};

use tourbillon::{facade::TaskHook, task::Id};

use super::Builder;

/// What a hook learns of a task.
#[derive(Debug)]
pub struct TaskMeta<'a> {
    id: Id,
    spawned_at: &'static Location<'static>,
    #[cfg(feature = "schedule-latency")]
    schedule_latency: Option<std::time::Duration>,
    _hook: PhantomData<&'a ()>,
}

impl TaskMeta<'_> {
    /// Returns the number of the task.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns where the task was spawned.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned_at
    }

    /// Returns how long the task was queued before this poll, if the builder has enabled this.
    /// `None` if it is spawned or has ended.
    #[cfg(feature = "schedule-latency")]
    pub fn schedule_latency(&self) -> Option<std::time::Duration> {
        self.schedule_latency
    }
}

/// Defines setters of hooks.
macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident: $hook:ident,)*) => {
        impl Builder {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, f: impl Fn(&TaskMeta<'_>) + Send + Sync + 'static)
                -> &mut Self {
                    self.options.hooks.$hook = Some(task_hook(f));
                    self
                }
            )*
        }
    };
}

hooks! {
    /// Calls `f` with each task that is spawned, before it can run.
    on_task_spawn: spawn,
    /// Calls `f` before each poll of a task.
    on_before_task_poll: before_poll,
    /// Calls `f` after each poll of a task.
    on_after_task_poll: after_poll,
    /// Calls `f` with each task that has ended, and with each job of `spawn_blocking`.
    on_task_terminate: terminate,
}

fn task_hook(f: impl Fn(&TaskMeta<'_>) + Send + Sync + 'static) -> TaskHook {
    Arc::new(move |id, spawned_at, _latency| {
        f(&TaskMeta {
            id,
            spawned_at,
            #[cfg(feature = "schedule-latency")]
            schedule_latency: _latency,
            _hook: PhantomData,
        });
    })
}
