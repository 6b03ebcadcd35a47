//! The runtimes that a thread has entered, and the runtime that its calls go to.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    sync::{Arc, MutexGuard},
};

use crate::{
    clock::runtime_clock::Clock,
    engine::{local::with_local, shared::Shared},
};

thread_local! {
    /// The runtimes that this thread has entered, innermost last, each with the number of its
    /// entry.
    static ENTERED: RefCell<Vec<(u64, Arc<Shared>)>> = const { RefCell::new(Vec::new()) };
    /// The number of the next entry.
    static ENTRIES: Cell<u64> = const { Cell::new(0) };
    /// Whether `ENTERED` is non-empty. Each armed timer checks this, and a flag is cheaper to read.
    static ANY_ENTERED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread drops the remains of a runtime whose workers have ended.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is a worker that is not in `block_in_place`, or a thread that
/// ends a runtime in place of a worker.
pub(crate) fn is_worker() -> bool {
    with_local(|local| local.is_some_and(|local| !local.in_place.get()))
        || ENDING.try_with(Cell::get).unwrap_or(false)
}

/// Panics if the calling thread is a worker, which `block_on` would block.
#[track_caller]
pub(crate) fn assert_may_block() {
    assert!(
        !is_worker(),
        "`block_on` was called on a worker of a Tourbillon runtime, where it would block the worker: \
         `.await` the future instead, or spawn it"
    );
}

/// Runs `f`, which drops the remains of a runtime, in the context of that runtime. Destructors find
/// the runtime as on a worker, and may block as little as there.
pub(crate) fn with_ending<R>(shared: &Arc<Shared>, f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            ENDING.set(self.0);
        }
    }
    // Enter the runtime, and mark the thread as one that must not block. Both end with this call.
    let _entered = enter(shared);
    let _reset = Reset(ENDING.replace(true));
    f()
}

/// Runs `f`, which drops a task of `shared`. If the thread is in no runtime, it enters `shared` for
/// that time.
pub(crate) fn within<R>(shared: &Arc<Shared>, f: impl FnOnce() -> R) -> R {
    let is_in_runtime = with_local(|local| local.is_some()) || ANY_ENTERED.get();
    // The second check: at the end of a thread its list is gone, and it cannot enter a runtime.
    if is_in_runtime || ENTERED.try_with(|_| ()).is_err() {
        return f();
    }
    let _entered = enter(shared);
    f()
}

/// Returns whether the calling thread has entered a runtime.
#[inline]
pub(crate) fn any_entered() -> bool {
    ANY_ENTERED.get()
}

/// Runs `f` with the runtime that was entered last. Returns `None` if the thread has entered none.
pub(crate) fn with_entered<R>(f: impl FnOnce(&Arc<Shared>) -> R) -> Option<R> {
    if !ANY_ENTERED.get() {
        return None;
    }
    ENTERED
        // At the end of a thread its list is gone. The thread is in no runtime then.
        .try_with(|entered| entered.borrow().last().map(|(_, shared)| f(shared)))
        .ok()
        .flatten()
}

/// Returns the runtime that this thread is in: the one it entered last, or the one whose worker it
/// is.
pub(crate) fn current() -> Option<Arc<Shared>> {
    // What was entered last takes precedence over the worker's own runtime.
    with_entered(Arc::clone)
        .or_else(|| with_local(|local| local.map(|local| local.shard.owner().shared.clone())))
}

/// Runs `f` with the runtime that this thread is in, if any.
#[cfg(feature = "facade")]
pub(crate) fn with_current<R>(mut f: impl FnMut(&Shared) -> R) -> Option<R> {
    with_entered(|shared| f(shared)).or_else(|| with_local(|local| local.map(|it| f(it.shared()))))
}

/// Runs `f` with the clock of the runtime that this thread is in, if any. It is the runtime whose
/// shards [`with_home`](super::placement::with_home) finds.
pub(crate) fn with_clock(f: &mut dyn FnMut(&Clock)) {
    if with_entered(|shared| f(&shared.clock)).is_none() {
        with_local(|local| local.into_iter().for_each(|local| f(&local.shared().clock)));
    }
}

/// Keeps a runtime entered until it is dropped: what the thread arms and spawns goes to that
/// runtime. See [`Handle::enter`](crate::runtime::Handle::enter).
///
/// The guard borrows the handle, but the runtime may be shut down while the guard exists. From then
/// on tasks that the thread spawns are cancelled at once, until the guard is dropped.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let _entered = runtime.enter();
/// runtime.shutdown_timeout(Duration::from_secs(1));
/// ```
///
/// The guards of a thread may be dropped in any order.
#[derive(Debug)]
#[must_use = "the context is left when the guard is dropped"]
pub struct EnterGuard<'a> {
    _entered: Entered,
    _runtime: PhantomData<&'a ()>,
}

/// Leaves the context when it is dropped.
///
/// It is a separate type because it has no lifetime. To the borrow checker, a type that has both a
/// lifetime and a `Drop` uses what it borrows until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    /// The number of this guard's entry in `ENTERED`.
    entry: u64,
    /// Keeps the type on its thread (not `Send`), but `Sync`, as a mutex guard is.
    _thread: PhantomData<MutexGuard<'static, ()>>,
}

/// Enters the runtime until the guard is dropped.
pub(crate) fn enter(shared: &Arc<Shared>) -> EnterGuard<'_> {
    EnterGuard {
        _entered: push(shared),
        _runtime: PhantomData,
    }
}

/// Enters the runtime until the guard, which has no lifetime, is dropped.
pub(crate) fn push(shared: &Arc<Shared>) -> Entered {
    // Guards may be dropped in any order, so each entry has a number by which its guard finds it.
    let entry = ENTRIES.get();
    ENTRIES.set(entry + 1);
    // At the end of a thread its list is gone, and the thread stays outside of any runtime. A
    // thread-local runtime is dropped there.
    let _ = ENTERED.try_with(|entered| {
        entered.borrow_mut().push((entry, shared.clone()));
        ANY_ENTERED.set(true);
    });
    Entered {
        entry,
        _thread: PhantomData,
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Guards may be dropped in any order. Entries that were made later stay.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|(entry, _)| *entry == self.entry);
            let left = at.map(|at| entered.remove(at));
            ANY_ENTERED.set(!entered.is_empty());
            left
        });
        // Drop the reference outside of the borrow: it may be the last one, and its destructor may
        // enter a runtime.
        drop(left);
    }
}
