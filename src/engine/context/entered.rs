//! Which runtime, and which worker, the calling thread belongs to.

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
    /// The runtimes that this thread has entered, innermost last, each with the number of its entry.
    static ENTERED: RefCell<Vec<(u64, Arc<Shared>)>> = const { RefCell::new(Vec::new()) };
    /// The number of the next entry.
    static ENTRIES: Cell<u64> = const { Cell::new(0) };
    /// Whether `ENTERED` has any. Each timer asks, and this is cheaper to read.
    static ANY_ENTERED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread drops what is left of a runtime whose workers have ended.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a worker that is not in `block_in_place`, or ends a runtime in the place
/// of one.
pub(crate) fn is_worker() -> bool {
    with_local(|local| local.is_some_and(|local| !local.in_place.get()))
        || ENDING.try_with(Cell::get).unwrap_or(false)
}

/// Runs `f`, which drops what is left of a runtime, in its context: destructors find it as they would
/// on a worker, and may block as little.
pub(crate) fn with_ending<R>(shared: &Arc<Shared>, f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            ENDING.set(self.0);
        }
    }
    let _entered = enter(shared);
    let _reset = Reset(ENDING.replace(true));
    f()
}

/// Runs `f`, which drops a task of `shared`, in the context of a runtime: in that of the task, if the
/// thread is in none.
pub(crate) fn inside<R>(shared: &Arc<Shared>, f: impl FnOnce() -> R) -> R {
    let is_inside = with_local(|local| local.is_some()) || ANY_ENTERED.get();
    if is_inside || ENTERED.try_with(|_| ()).is_err() {
        return f();
    }
    let _entered = enter(shared);
    f()
}

/// Whether the calling thread has entered a runtime.
#[inline]
pub(crate) fn any_entered() -> bool {
    ANY_ENTERED.get()
}

/// Runs `f` with the runtime that was entered last, if one was.
pub(crate) fn with_entered<R>(f: impl FnOnce(&Arc<Shared>) -> R) -> Option<R> {
    if !ANY_ENTERED.get() {
        return None;
    }
    ENTERED
        .try_with(|entered| entered.borrow().last().map(|(_, shared)| f(shared)))
        .ok()
        .flatten()
}

/// Returns the runtime that this thread is in: the one entered last, or the one whose worker it is.
pub(crate) fn current() -> Option<Arc<Shared>> {
    with_entered(Arc::clone)
        .or_else(|| with_local(|local| local.map(|local| local.shard.owner().shared.clone())))
}

/// Runs `f` with the clock of the runtime that this thread is in, if it is in one. It is the runtime
/// whose shards [`with_home`](super::placement::with_home) finds.
pub(crate) fn with_clock(f: &mut dyn FnMut(&Clock)) {
    if with_entered(|shared| f(&shared.clock)).is_none() {
        with_local(|local| local.into_iter().for_each(|local| f(&local.shared().clock)));
    }
}

/// Keeps a runtime entered: what the thread arms and spawns goes there. See
/// [`Handle::enter`](crate::runtime::Handle::enter).
///
/// It borrows the handle, but a runtime may be shut down while its guard is there. From then on
/// what the thread spawns is cancelled at once, until the guard is dropped.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let _entered = runtime.enter();
/// runtime.shutdown_timeout(Duration::from_secs(1));
/// ```
#[derive(Debug)]
#[must_use = "the context is left when the guard is dropped"]
pub struct EnterGuard<'a> {
    _entered: Entered,
    _runtime: PhantomData<&'a ()>,
}

/// Leaves the context when it is dropped. A type of its own, without a lifetime: to the borrow
/// checker a type that has a lifetime and a `Drop` uses what it borrows until it is dropped.
#[derive(Debug)]
struct Entered {
    /// Which entry this is.
    entry: u64,
    /// It stays on its thread, as the guard of a mutex does, and may be looked at by others.
    _thread: PhantomData<MutexGuard<'static, ()>>,
}

/// Enters the runtime until the guard is dropped.
pub(crate) fn enter(shared: &Arc<Shared>) -> EnterGuard<'_> {
    let entry = ENTRIES.get();
    ENTRIES.set(entry + 1);
    ENTERED.with_borrow_mut(|entered| {
        entered.push((entry, shared.clone()));
        ANY_ENTERED.set(true);
    });
    EnterGuard {
        _entered: Entered {
            entry,
            _thread: PhantomData,
        },
        _runtime: PhantomData,
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Guards may be dropped out of order: those entered later stay.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|(entry, _)| *entry == self.entry);
            let left = at.map(|at| entered.remove(at));
            ANY_ENTERED.set(!entered.is_empty());
            left
        });
        drop(left);
    }
}
