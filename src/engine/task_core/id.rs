//! Task numbers, and the number of the running task.

use std::{cell::Cell, fmt, num::NonZeroU64};

use crate::sys::sync::atomic::{AtomicU64, Ordering};

/// How many numbers a thread takes from the global counter at a time.
const BLOCK: u64 = 1 << 16;

/// The start of the next block of numbers. The first block starts at 1, so zero is never a number.
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The number of the task that this thread runs, or zero if it runs none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// The next number of this thread's block. A multiple of [`BLOCK`] means that the block is used
    /// up or that the thread has none.
    static NEXT_OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The number of a task. No other task of the process has it, before or after.
///
/// Numbers do not follow the order in which tasks were spawned.
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
    /// Returns a new number. It comes from this thread's block, so that cores do not contend for
    /// one counter.
    #[inline]
    pub(crate) fn fresh() -> Self {
        let mut next = NEXT_OF_THREAD.get();
        // The block is used up. The initial value, zero, counts as a used-up block, too.
        if next % BLOCK == 0 {
            // Relaxed is enough: the number is unique, and publishes nothing else.
            next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
        }
        NEXT_OF_THREAD.set(next + 1);
        Id(NonZeroU64::new(next).expect("64 bits are enough for centuries"))
    }
}

#[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
impl Id {
    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the number of the running task.
///
/// A job of [`spawn_blocking`](crate::task::spawn_blocking) has a number, too. The destructor of a
/// task's future still sees the number of that task.
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
/// Panics outside of tasks, and in the future that `block_on` runs; see [`try_id`].
#[track_caller]
pub fn id() -> Id {
    try_id().expect("`id` was called outside of a task")
}

/// Returns the number of the running task, or `None` outside of tasks.
///
/// ```
/// use tourbillon::task::try_id;
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// assert_eq!(try_id(), None, "the future of block_on is not a task");
/// assert!(tourbillon::spawn(async { try_id() }).await.unwrap().is_some());
/// # });
/// ```
pub fn try_id() -> Option<Id> {
    NonZeroU64::new(CURRENT.get()).map(Id)
}

/// Runs `f` as a part of task `id`, and restores the previous task afterwards, also on a panic.
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
    fn the_outer_task_is_restored_after_an_inner_one() {
        let (outer, inner) = (Id::fresh(), Id::fresh());
        within(outer, || {
            assert_eq!(within(inner, id), inner);
            assert_eq!(id(), outer);
        });
        assert_eq!(try_id(), None);
    }
}
