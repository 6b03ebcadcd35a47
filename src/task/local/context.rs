//! Where `spawn_local` puts its tasks: what the calling thread is inside of.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    ptr,
};

use crate::engine::task_core::home::Home;

thread_local! {
    /// The home of the task that is polled, or dropped, if that is a local one. Alive for as long as it
    /// stands here.
    static POLLED: Cell<Polled> = const { Cell::new(Polled { home: ptr::null(), entries: 0 }) };
    /// The sets that were entered, innermost last, each with its number.
    static ENTERED: RefCell<Vec<(u64, Home)>> = const { RefCell::new(Vec::new()) };
    /// How many were ever entered.
    static ENTRIES: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone, Copy)]
struct Polled {
    home: *const Home,
    /// How many sets had been entered before: those entered since are inside of it.
    entries: u64,
}

/// The thread polls or drops a task of a home, until this is dropped: what that spawns locally goes there.
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

/// Where a task of this thread goes, if it is inside of anything.
pub(crate) fn current() -> Option<Home> {
    let polled = POLLED.get();
    // SAFETY: null, or set by a `Within`, which borrows it and has not been dropped.
    let home = unsafe { polled.home.as_ref() };
    let entered = ENTERED.try_with(|entered| {
        let entered = entered.borrow();
        let last = entered.last()?;
        (home.is_none() || last.0 >= polled.entries).then(|| last.1.clone())
    });
    // Without the list, the thread is about to end.
    entered.ok().flatten().or_else(|| home.cloned())
}

/// Keeps a [`LocalSet`](crate::task::local::set::LocalSet) entered: see [`LocalSet::enter`](crate::task::local::set::LocalSet::enter).
#[derive(Debug)]
#[must_use = "the set is left when the guard is dropped"]
pub struct LocalEnterGuard {
    /// Which entry this is.
    entry: u64,
    /// Bound to the thread.
    _here: PhantomData<*const ()>,
}

pub(crate) fn enter(home: &Home) -> LocalEnterGuard {
    let entry = ENTRIES.get();
    ENTRIES.set(entry + 1);
    ENTERED.with_borrow_mut(|entered| entered.push((entry, home.clone())));
    LocalEnterGuard {
        entry,
        _here: PhantomData,
    }
}

impl Drop for LocalEnterGuard {
    fn drop(&mut self) {
        // Guards may be dropped out of order: those entered later stay.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let at = entered.iter().rposition(|(entry, _)| *entry == self.entry);
            at.map(|at| entered.remove(at))
        });
        drop(left);
    }
}
