//! Selects the worker that a remote thread uses next.

use std::cell::Cell;

use crate::sys::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// The number that this thread used last to select a worker. Zero before the first.
    static SPREAD: Cell<usize> = const { Cell::new(0) };
    /// The worker that gets this thread's timers at present.
    static STAY: Stay = const { Stay::new() };
}

/// The worker that gets the timers of a remote thread, for a run of them.
struct Stay {
    /// How many more timers go to it.
    left: Cell<u32>,
    /// The worker's number.
    at: Cell<usize>,
    /// How many workers the runtime has. If another runtime has as many, the run goes on there.
    of: Cell<usize>,
}

/// How many timers in a row a remote thread arms on one worker. A long run has two benefits: two
/// threads that arm many timers meet less often, and a worker that is woken at the end of a run
/// still finds the nodes in a cache.
const RUN: u32 = 1_024;

/// Returns a number that differs from call to call on this thread, and is never zero except at the
/// thread's end.
pub(crate) fn spread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(1);
    SPREAD
        .try_with(|spread| {
            let next = match spread.get() {
                // Each thread begins at another number: many threads call this only once.
                0 => THREADS.fetch_add(1, Ordering::Relaxed).max(1),
                // Zero is kept for a thread without a number.
                last => last.wrapping_add(1).max(1),
            };
            spread.set(next);
            next
        })
        .unwrap_or(0)
}

/// Returns the index of the worker, one of `of`, that gets the next timer of this thread.
///
/// It returns each index [`RUN`] times in a row, and then the next in turn. When it leaves a
/// worker, it calls `leave` with that worker's index.
#[inline]
pub(crate) fn stay(of: usize, leave: impl FnOnce(usize)) -> usize {
    // At the end of a thread the variable is gone, and any worker is right.
    STAY.try_with(|stay| match stay.left.get() {
        left if left > 0 && stay.of.get() == of => {
            stay.left.set(left - 1);
            stay.at.get()
        }
        _ => stay.go_on(of, leave),
    })
    .unwrap_or(0)
}

/// Counts the `count` timers that the calling thread arms together, after one call of [`stay`].
pub(crate) fn stay_for(count: usize) {
    let more = u32::try_from(count).unwrap_or(RUN).saturating_sub(1);
    // At the end of a thread there is no run.
    _ = STAY.try_with(|stay| stay.left.set(stay.left.get().saturating_sub(more)));
}

/// Ends the run of this thread, which has met another thread at the worker's inbox. Otherwise two
/// equally fast threads would stay together, and take cache lines from each other for each timer.
#[cold]
pub(crate) fn make_way() {
    // At the end of a thread there is no run. No runtime has zero workers, so the next call begins
    // a run; and it does not call `leave`: the inbox has few timers of this run.
    _ = STAY.try_with(|stay| stay.of.set(0));
}

impl Stay {
    const fn new() -> Self {
        Self {
            left: Cell::new(0),
            at: Cell::new(0),
            of: Cell::new(0),
        }
    }

    /// Begins the next run. Calls `leave` if the last one was not cut short.
    #[cold]
    fn go_on(&self, of: usize, leave: impl FnOnce(usize)) -> usize {
        // The inbox of that worker has a whole run. Its owner should read it while the nodes are in
        // a cache.
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
            // The worker is not woken for a run that was cut short.
            assert_ne!(stay(usize::MAX, |_| unreachable!()), first);
        };
        thread::spawn(turns).join().unwrap();
    }

    #[test]
    fn timers_that_are_armed_together_count_each() {
        let turns = || {
            let first = stay(usize::MAX, |_| unreachable!());
            stay_for(RUN as usize - 1);
            assert_eq!(stay(usize::MAX, |_| unreachable!()), first, "one is left");
            stay_for(1);
            assert_ne!(stay(usize::MAX, |_| ()), first);
            // More than are left.
            stay_for(usize::MAX);
            assert_eq!(stay(usize::MAX, |_| ()), first + 2);
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
