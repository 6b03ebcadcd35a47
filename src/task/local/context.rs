//! The local context of a thread: it decides where `spawn_local` puts its tasks.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    ptr,
};

use crate::engine::task_core::home::Home;

thread_local! {
    /// The home of the local task that this thread polls or drops, or null. The home is alive for
    /// as long as it is set here.
    static POLLED: Cell<Polled> = const { Cell::new(Polled { home: ptr::null(), entries: 0 }) };
    /// The sets that this thread has entered, innermost last, each with the number of its entry.
    static ENTERED: RefCell<Vec<(u64, Home)>> = const { RefCell::new(Vec::new()) };
    /// The number of the next entry.
    static ENTRIES: Cell<u64> = const { Cell::new(0) };
}

/// The local task that this thread polls or drops.
#[derive(Clone, Copy)]
struct Polled {
    /// The home of the task, or null if there is none.
    home: *const Home,
    /// The value of `ENTRIES` when the poll began. The task itself has entered every set whose
    /// number is not less, so these sets are inner contexts of the poll.
    entries: u64,
}

/// Marks that this thread polls or drops a task of `home`. Until it is dropped, `spawn_local` puts
/// tasks there.
pub(crate) struct Within<'a> {
    before: Polled,
    _home: PhantomData<&'a Home>,
}

impl<'a> Within<'a> {
    pub(crate) fn begin(home: &'a Home) -> Self {
        let polled = Polled {
            home: ptr::from_ref(home),
            entries: ENTRIES.get(),
        };
        Self {
            before: POLLED.replace(polled),
            _home: PhantomData,
        }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        POLLED.set(self.before);
    }
}

/// Returns where `spawn_local` puts a task, or `None` if the thread is in no local context. The
/// innermost context counts, whether it is a polled task or an entered set.
pub(crate) fn current() -> Option<Home> {
    let polled = POLLED.get();
    // SAFETY: the pointer is null, or a `Within` has set it, which borrows the home and resets the
    // pointer when it is dropped.
    let home = unsafe { polled.home.as_ref() };
    let entered = ENTERED.try_with(|entered| {
        let entered = entered.borrow();
        let last = entered.last()?;
        // A set that was entered before the poll began lies outside of the polled task. The task
        // counts then.
        (home.is_none() || last.0 >= polled.entries).then(|| last.1.clone())
    });
    // If the thread-local list is gone the thread is about to end: only the polled task counts.
    entered.ok().flatten().or_else(|| home.cloned())
}

/// Keeps a [`LocalSet`](crate::task::local::set::LocalSet) entered until it is dropped: see
/// [`LocalSet::enter`](crate::task::local::set::LocalSet::enter).
#[derive(Debug)]
#[must_use = "the set is left when the guard is dropped"]
pub struct LocalEnterGuard {
    /// The number of the entry.
    entry: u64,
    /// Makes the guard neither `Send` nor `Sync`.
    _here: PhantomData<*const ()>,
}

pub(crate) fn enter(home: &Home) -> LocalEnterGuard {
    let entry = ENTRIES.get();
    ENTRIES.set(entry + 1);
    // At the end of the thread there is no list any more.
    let _ = ENTERED.try_with(|entered| entered.borrow_mut().push((entry, home.clone())));
    LocalEnterGuard {
        entry,
        _here: PhantomData,
    }
}

impl Drop for LocalEnterGuard {
    fn drop(&mut self) {
        // Guards may be dropped in any order. Entries that were made later stay.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|(entry, _)| *entry == self.entry);
            at.map(|at| entered.remove(at))
        });
        drop(left);
    }
}
