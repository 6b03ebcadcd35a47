//! The numbers of tasks.

use std::{cell::Cell, fmt, num::NonZeroU64};

use crate::sys::sync::atomic::{AtomicU64, Ordering};

/// How many numbers are handed out at a time.
const BLOCK: u64 = 1 << 16;

/// The next block of numbers but for its first, which is not given out: zero is no number.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The task that this thread runs; zero if it runs none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// The next number of this thread's block; a multiple of [`BLOCK`] if that is used up, or there is none.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// The number of a task, which no other task of the process has or will have.
///
/// Numbers tell nothing of the order in which tasks were spawned.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let task = tourbillon::spawn(async { tourbillon::task::id() });
/// let id = task.id();
/// assert_eq!(task.await.unwrap(), id);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// A number that no other task has: the next of this thread's block, so that the cores need not
    /// fight over one counter.
    #[inline]
    pub(crate) fn fresh() -> Self {
        let mut next = BEGUN.get();
        if next % BLOCK == 0 {
            // A number is nothing but itself: it publishes nothing.
            next = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
        }
        BEGUN.set(next + 1);
        Id(NonZeroU64::new(next).expect("not used up in centuries"))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of the task that calls this.
///
/// What is given to [`spawn_blocking`](super::spawn_blocking) has one, too. In the destructor of a
/// task's future it is still that task's.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let task = tourbillon::spawn(async {
///     println!("this is task {}", tourbillon::task::id());
/// });
/// task.await.unwrap();
/// # });
/// ```
///
/// # Panics
///
/// Outside of tasks, and in what `block_on` runs there; see [`try_id`].
#[track_caller]
pub fn id() -> Id {
    try_id().expect("this is not a task")
}

/// The number of the task that calls this, if one does.
///
/// ```
/// use tourbillon::task::try_id;
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// assert_eq!(try_id(), None, "what is given to block_on is no task");
/// assert!(tourbillon::spawn(async { try_id() }).await.unwrap().is_some());
/// # });
/// ```
pub fn try_id() -> Option<Id> {
    NonZeroU64::new(CURRENT.get()).map(Id)
}

/// Runs `f` as a part of this task.
#[inline]
pub(crate) fn within<R>(id: Id, f: impl FnOnce() -> R) -> R {
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(id.0.get()));
    f()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    #[test]
    fn numbers_of_different_threads_differ_beyond_their_blocks() {
        let count = usize::try_from(BLOCK).unwrap() + 1;
        let draw = move || (0..count).map(|_| Id::fresh()).collect::<Vec<_>>();
        let threads = [(); 2].map(|()| thread::spawn(draw));
        let drawn = threads.map(|thread| thread.join().unwrap());
        let ids: HashSet<_> = drawn.into_iter().flatten().chain([Id::fresh()]).collect();
        assert_eq!(ids.len(), 2 * count + 1);
    }

    #[test]
    fn a_task_within_a_task_gives_way_to_it_again() {
        let (outer, inner) = (Id::fresh(), Id::fresh());
        within(outer, || {
            assert_eq!(within(inner, id), inner);
            assert_eq!(id(), outer);
        });
        assert_eq!(try_id(), None);
    }
}
