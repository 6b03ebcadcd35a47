//! What the wakers of a task do. They depend on its policy, and not on its future, so that tasks share
//! this code.

use std::{
    ptr::NonNull,
    task::{RawWaker, RawWakerVTable},
};

use crate::{Policy, Runnable, Task, TaskRef, Woken, state::Woken as Wake};

/// The functions of the wakers of tasks of a policy.
pub(crate) const fn vtable<P: Policy>() -> RawWakerVTable {
    RawWakerVTable::new(clone::<P>, wake::<P>, wake_by_ref::<P>, release::<P>)
}

/// # Safety
///
/// These four are called by wakers of a task of this policy, each of which is a reference.
unsafe fn clone<P: Policy>(address: *const ()) -> RawWaker {
    // SAFETY: as the caller says.
    let task = unsafe { task_of::<P>(address) };
    task.header().state.add_reference();
    task.raw_waker()
}

/// # Safety
///
/// See [`clone`]. The reference is given up.
unsafe fn wake<P: Policy>(address: *const ()) {
    // SAFETY: as the caller says; and what the state has just said.
    unsafe {
        let task = task_of::<P>(address);
        match task.header().state.wake() {
            Wake::Schedule => P::schedule(Runnable::of(task.address()), Woken::Waiting),
            Wake::Released(released) => Task::released(task.address(), released),
        }
    }
}

/// # Safety
///
/// See [`clone`].
unsafe fn wake_by_ref<P: Policy>(address: *const ()) {
    // SAFETY: as the caller says; and what the state has just said.
    unsafe {
        let task = task_of::<P>(address);
        if task.header().state.wake_by_ref() {
            P::schedule(Runnable::of(task.address()), Woken::Waiting);
        }
    }
}

/// # Safety
///
/// See [`clone`]. The reference is given up.
unsafe fn release<P: Policy>(address: *const ()) {
    // SAFETY: as the caller says.
    unsafe {
        let address = task_of::<P>(address).address();
        drop(TaskRef::of(address));
    }
}

/// # Safety
///
/// It is the address of a task of this policy, which is there for as long as what is answered.
#[inline]
unsafe fn task_of<P: Policy>(address: *const ()) -> Task<P::Metadata> {
    // SAFETY: as the caller says; it came from a `NonNull`.
    unsafe { Task::at(NonNull::new_unchecked(address.cast_mut().cast())) }
}
