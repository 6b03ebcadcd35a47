//! Which runtime, and which worker, the calling thread belongs to.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    ptr,
    sync::{Arc, MutexGuard},
};

use super::{
    core::{Core, WorkerShard},
    handle::{Choice, Handle},
    local::Local,
    shared::Shared,
};
use crate::{
    sys::sync::atomic::{AtomicUsize, Ordering},
    time::Clock,
};

thread_local! {
    /// The worker that this thread is, if it is one. Set for as long as its `Local` lives.
    static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };
    /// The worker's core: what timers ask for.
    static CORE: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// The runtimes that were entered, innermost last.
    static ENTERED: RefCell<Vec<(u64, Handle)>> = const { RefCell::new(Vec::new()) };
    /// How many runtimes were ever entered, which tells those of one depth apart.
    static ENTRIES: Cell<u64> = const { Cell::new(0) };
    /// Whether there are any: asked by each timer, and cheaper to ask.
    static ANY_ENTERED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread ends a runtime, after its workers have left.
    static ENDING: Cell<bool> = const { Cell::new(false) };
    /// Where this thread, which is no worker, puts what it has next.
    static SPREAD: Cell<usize> = const { Cell::new(0) };
    /// Where it puts its timers.
    static STAY: Stay = const { Stay::new() };
}

/// The worker that gets the timers of a thread which is no worker.
struct Stay {
    /// How many more timers go there.
    left: Cell<u32>,
    /// The worker's number.
    at: Cell<usize>,
    /// How many workers there are. It is most likely the same runtime if they are as many.
    of: Cell<usize>,
}

/// How many timers in a row a remote thread arms on one worker, before it goes on to the next. Two
/// threads that arm many meet less often then, and a worker that is woken at the end of a run still
/// finds the nodes in a cache.
const RUN: u32 = 1_024;

/// Makes the calling thread the worker of `local` while `f` runs, in place of the one that it is, if it is one.
pub(super) fn with_worker<R>(local: &Local, f: impl FnOnce() -> R) -> R {
    struct Reset(*const Local, *const Core);
    impl Drop for Reset {
        fn drop(&mut self) {
            LOCAL.set(self.0);
            CORE.set(self.1);
        }
    }
    let _reset = Reset(LOCAL.get(), CORE.get());
    CORE.set(ptr::from_ref(local.shard.owner()));
    LOCAL.set(ptr::from_ref(local));
    f()
}

/// Runs `f` on this thread's worker, if it is one.
#[inline]
pub(super) fn with_local<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
    let local = LOCAL.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: the pointer is set only while the `Local`, on this thread's stack, is borrowed by
    // `with_worker`.
    f(unsafe { local.as_ref() })
}

/// Whether the calling thread is the worker that `core` belongs to.
#[inline]
pub(crate) fn is_current(core: &Core) -> bool {
    CORE.try_with(|current| ptr::eq(current.get(), core))
        .unwrap_or(false)
}

/// Whether the calling thread is a worker that is not in `block_in_place`, or ends a runtime in the place
/// of one.
pub(crate) fn is_worker() -> bool {
    with_local(|local| local.is_some_and(|local| !local.in_place.get()))
        || ENDING.try_with(Cell::get).unwrap_or(false)
}

/// Whether the calling thread is one of this runtime's workers or helpers.
pub(super) fn is_thread_of(shared: &Shared) -> bool {
    with_local(|local| local.is_some_and(|local| local.is_of(shared)))
}

/// The number of the calling thread, if it is one of this runtime's workers, and no helper.
#[inline]
pub(crate) fn worker_number(shared: &Shared) -> Option<usize> {
    with_local(|local| {
        let core = local.filter(|local| local.is_of(shared))?.shard.owner();
        (!core.is_helper).then_some(core.index)
    })
}

/// Runs `f`, which drops what is left of a runtime, in its context: destructors find it as they would
/// on a worker, and may block as little.
pub(super) fn with_ending<R>(handle: &Handle, f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            ENDING.set(self.0);
        }
    }
    let _entered = enter(handle);
    let _reset = Reset(ENDING.replace(true));
    f()
}

/// Runs `f`, which drops a task of `core`, in the context of a runtime: in that of the task, if the
/// thread is in none.
pub(crate) fn inside<R>(core: &Core, f: impl FnOnce() -> R) -> R {
    let is_inside = with_local(|local| local.is_some()) || ANY_ENTERED.get();
    if is_inside || ENTERED.try_with(|_| ()).is_err() {
        return f();
    }
    let handle = core.handle();
    let _entered = enter(&handle);
    f()
}

/// Whether the calling thread has entered a runtime.
pub(super) fn has_entered() -> bool {
    ANY_ENTERED.get()
}

/// Runs `f` on the handle of the runtime that was entered last, if one was.
fn with_entered<R>(f: impl FnOnce(&Handle) -> R) -> Option<R> {
    if !ANY_ENTERED.get() {
        return None;
    }
    ENTERED
        .try_with(|entered| entered.borrow().last().map(|(_, handle)| f(handle)))
        .ok()
        .flatten()
}

/// A handle to the runtime that this thread is in: the one entered last, or the one whose worker it
/// is.
pub(super) fn handle() -> Option<Handle> {
    with_entered(Handle::clone)
        .or_else(|| with_local(|local| local.map(|local| local.shard.owner().handle())))
}

/// Runs `f` with the shard where this thread's timers, sockets and tasks go: its own if it is a
/// worker, otherwise one of the entered runtime's, as `choice` says.
#[inline]
pub(crate) fn with_home<R>(
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    if !ANY_ENTERED.get() {
        return with_local(|local| {
            let local = local.ok_or(HomeError::NoRuntime)?;
            match local.home() {
                Some(home) => Ok(f(home)),
                None => local.shared().with_any_home(choice, f),
            }
        });
    }
    with_entered_home(choice, f)
}

/// The same in the runtime that was entered last, or, at the end of the thread, in its worker's.
#[cold]
fn with_entered_home<R>(
    choice: Choice,
    f: impl FnOnce(&Arc<WorkerShard>) -> R,
) -> Result<R, HomeError> {
    // Found before `f` is called, which may enter another.
    let found = with_entered(|handle| {
        let shared = handle.shared();
        let own = with_local(|local| local.filter(|local| local.is_of(shared))?.home().cloned());
        own.ok_or_else(|| shared.workers.load())
    });
    match found {
        Some(Ok(home)) => Ok(f(&home)),
        Some(Err(workers)) => choice.among(&workers).map(f).ok_or(HomeError::Shutdown),
        None => Err(HomeError::NoRuntime),
    }
}

/// Runs `f` on the clock of the runtime that this thread is in, if it is in one: the same whose shards
/// [`with_home`] finds.
pub(crate) fn with_clock<R>(f: impl Fn(&Clock) -> R) -> Option<R> {
    with_entered(|handle| f(&handle.shared().clock))
        .or_else(|| with_local(|local| local.map(|local| f(&local.shared().clock))))
}

/// Why there is no shard for a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HomeError {
    NoRuntime,
    Shutdown,
}

/// Any number, not for secrets.
pub(super) fn random() -> u64 {
    crate::sys::random()
}

/// A number that differs from call to call on this thread.
pub(super) fn spread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(1);
    SPREAD
        .try_with(|spread| {
            let next = match spread.get() {
                // Threads begin one after the other: many do no more than this once.
                0 => THREADS.fetch_add(1, Ordering::Relaxed).max(1),
                last => last.wrapping_add(1).max(1),
            };
            spread.set(next);
            next
        })
        .unwrap_or(0)
}

/// Returns the worker, one of `of`, that gets the next timer of this thread: the same [`RUN`] times,
/// then the next in turn. Calls `leave` with the number of the worker that it leaves.
#[inline]
pub(super) fn stay(of: usize, leave: impl FnOnce(usize)) -> usize {
    // At a thread's end any worker does.
    STAY.try_with(|stay| match stay.left.get() {
        left if left > 0 && stay.of.get() == of => {
            stay.left.set(left - 1);
            stay.at.get()
        }
        _ => stay.go_on(of, leave),
    })
    .unwrap_or(0)
}

/// Ends the run of this thread: it has met another thread at the worker's inbox. Two threads that
/// are equally fast would otherwise stay together, and take the same cache lines from each other for
/// each timer.
#[cold]
pub(super) fn make_way() {
    // At a thread's end there is no run.
    _ = STAY.try_with(|stay| stay.left.set(0));
}

impl Stay {
    const fn new() -> Self {
        Self {
            left: Cell::new(0),
            at: Cell::new(0),
            of: Cell::new(0),
        }
    }

    /// Begins the next run.
    #[cold]
    fn go_on(&self, of: usize, leave: impl FnOnce(usize)) -> usize {
        if self.of.get() == of {
            leave(self.at.get());
        }
        let at = spread().checked_rem(of).unwrap_or(0);
        self.left.set(RUN - 1);
        self.at.set(at);
        self.of.set(of);
        at
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
    _handle: PhantomData<&'a Handle>,
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

pub(super) fn enter(handle: &Handle) -> EnterGuard<'_> {
    let entry = ENTRIES.get();
    ENTRIES.set(entry + 1);
    ENTERED.with_borrow_mut(|entered| {
        entered.push((entry, handle.clone()));
        ANY_ENTERED.set(true);
    });
    EnterGuard {
        _entered: Entered {
            entry,
            _thread: PhantomData,
        },
        _handle: PhantomData,
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn remote_thread_leaves_a_worker_after_each_run() {
        let turns = || {
            let run = |left: Option<usize>| {
                let mut after = None;
                let at = stay(usize::MAX, |at| after = Some(at));
                assert_eq!(after, left);
                for _ in 1..RUN {
                    assert_eq!(stay(usize::MAX, |_| unreachable!()), at);
                }
                at
            };
            let first = run(None);
            assert_ne!(run(Some(first)), first);
        };
        thread::spawn(turns).join().unwrap();
    }

    #[test]
    fn remote_thread_leaves_a_worker_where_it_met_another_thread() {
        let turns = || {
            let first = stay(usize::MAX, |_| unreachable!());
            make_way();
            let mut left = None;
            assert_ne!(stay(usize::MAX, |at| left = Some(at)), first);
            assert_eq!(left, Some(first));
        };
        thread::spawn(turns).join().unwrap();
    }

    #[test]
    fn another_runtime_begins_another_run() {
        let turns = || {
            (0..RUN / 2).for_each(|_| _ = stay(usize::MAX, |_| unreachable!()));
            (stay(1, |_| unreachable!()), stay(0, |_| unreachable!()))
        };
        assert_eq!(thread::spawn(turns).join().unwrap(), (0, 0));
    }
}
