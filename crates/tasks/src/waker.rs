//! The waker functions of a task. They depend on its policy but not on its future, so all tasks of
//! a policy share this code.

use std::{
    ptr::NonNull,
    task::{RawWaker, RawWakerVTable},
};

use crate::{Policy, Runnable, Task, TaskRef, WakerCall, Woken, state::Woken as Wake};

/// Returns the waker functions of a policy.
pub(crate) const fn vtable<P: Policy>() -> RawWakerVTable {
    RawWakerVTable::new(clone::<P>, wake::<P>, wake_by_ref::<P>, release::<P>)
}

/// Returns the functions of the waker that a traced poll is lent. Nobody owns such a waker: its
/// clones have the functions of [`vtable`].
pub(crate) const fn traced<P: Policy>() -> RawWakerVTable {
    RawWakerVTable::new(clone_traced::<P>, wake::<P>, wake_by_ref::<P>, release::<P>)
}

/// Reports that a traced poll clones its waker, and returns an ordinary waker of the task.
///
/// # Safety
///
/// See [`clone`].
#[inline(never)]
unsafe fn clone_traced<P: Policy>(address: *const ()) -> RawWaker {
    // SAFETY: by the contract of this function.
    unsafe {
        P::traced(task_of::<P>(address).metadata());
        clone::<P>(address)
    }
}

/// Clones a waker: counts another reference.
///
/// # Safety
///
/// `address` is that of a waker, which is a counted reference to a task with policy `P`. The same
/// holds for all functions of this file.
unsafe fn clone<P: Policy>(address: *const ()) -> RawWaker {
    // SAFETY: by the contract of this function.
    let task = unsafe { task_of::<P>(address) };
    P::waker_called(task.metadata(), WakerCall::Clone);
    task.header().state.add_reference();
    task.raw_waker()
}

/// Wakes the task and releases the reference.
///
/// # Safety
///
/// See [`clone`]. The reference is consumed.
unsafe fn wake<P: Policy>(address: *const ()) {
    // SAFETY: by the contract of this function. Each branch does what the state has just told this
    // thread.
    unsafe {
        let task = task_of::<P>(address);
        P::waker_called(task.metadata(), WakerCall::Wake);
        match task.header().state.wake() {
            Wake::Schedule => P::schedule(Runnable::of(task.address()), Woken::Waiting),
            Wake::Released(released) => Task::released(task.address(), released),
        }
    }
}

/// Wakes the task and keeps the reference.
///
/// # Safety
///
/// See [`clone`].
unsafe fn wake_by_ref<P: Policy>(address: *const ()) {
    // SAFETY: by the contract of this function. The state has counted the reference of the
    // `Runnable`.
    unsafe {
        let task = task_of::<P>(address);
        P::waker_called(task.metadata(), WakerCall::WakeByRef);
        if task.header().state.wake_by_ref() {
            P::schedule(Runnable::of(task.address()), Woken::Waiting);
        }
    }
}

/// Drops a waker: releases the reference.
///
/// # Safety
///
/// See [`clone`]. The reference is consumed.
unsafe fn release<P: Policy>(address: *const ()) {
    // SAFETY: by the contract of this function.
    unsafe {
        let task = task_of::<P>(address);
        P::waker_called(task.metadata(), WakerCall::Drop);
        let address = task.address();
        drop(TaskRef::of(address));
    }
}

/// Returns a view of the task at the address of a waker.
///
/// # Safety
///
/// `address` is that of a task with policy `P`, which stays allocated while the result is used.
#[inline]
unsafe fn task_of<P: Policy>(address: *const ()) -> Task<P::Metadata> {
    // SAFETY: by the contract of this function. The address was made from a `NonNull`.
    unsafe { Task::at(NonNull::new_unchecked(address.cast_mut().cast())) }
}
