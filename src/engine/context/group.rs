//! The group to which the calling thread's new tasks and timers belong.

use std::{cell::Cell, ptr};

use crate::engine::{groups::GroupId, shared::Shared};

thread_local! {
    /// The group of the task or callback that this thread runs, or of the innermost scope in it.
    static CURRENT: Cell<Current> = const { Cell::new(Current::NONE) };
}

/// A group of a runtime.
#[derive(Clone, Copy)]
struct Current {
    /// The address of the runtime, or null. Compared, and never followed.
    runtime: *const Shared,
    group: GroupId,
}

impl Current {
    const NONE: Self = Self {
        runtime: ptr::null(),
        group: GroupId::DEFAULT,
    };
}

/// Puts what the calling thread spawns and arms into a group, until it is dropped.
#[must_use]
pub(crate) struct InGroup(Current);

impl InGroup {
    /// Enters a group of `shared`.
    pub(crate) fn enter(shared: &Shared, group: GroupId) -> Self {
        let runtime = ptr::from_ref(shared);
        Self(CURRENT.replace(Current { runtime, group }))
    }
}

impl Drop for InGroup {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Returns the group of what the calling thread spawns on `shared`.
#[inline]
pub(crate) fn current(shared: &Shared) -> GroupId {
    match shared.task_groups.table() {
        None => GroupId::DEFAULT,
        Some(_) => of_thread(shared),
    }
}

#[cold]
fn of_thread(shared: &Shared) -> GroupId {
    let current = CURRENT.get();
    match ptr::eq(current.runtime, shared) {
        true => current.group,
        // The group of another runtime says nothing here.
        false => GroupId::DEFAULT,
    }
}
