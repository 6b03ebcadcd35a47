//! Which worker a thread outside of the runtime uses next, and random numbers.

use std::cell::Cell;

use crate::sys::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Where this thread, which is no worker, puts what it has next.
    static SPREAD: Cell<usize> = const { Cell::new(0) };
    /// Where it puts its timers now.
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

/// Any number, not for secrets.
pub(crate) fn random() -> u64 {
    crate::sys::random()
}

/// A number that differs from call to call on this thread.
pub(crate) fn spread() -> usize {
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
pub(crate) fn stay(of: usize, leave: impl FnOnce(usize)) -> usize {
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
pub(crate) fn make_way() {
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
