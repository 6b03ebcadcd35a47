//! Which worker a thread outside of the runtime uses next, and random numbers.

use std::cell::Cell;

use crate::sys::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Where this thread, which is no worker, puts what it has next.
    static SPREAD: Cell<usize> = const { Cell::new(0) };
    /// Where it puts its timers now.
    static STAY: Stay = const { Stay::new() };
}

/// With which worker the timers of a thread stay that is no worker.
struct Stay {
    /// How many more are to go there.
    left: Cell<u32>,
    /// How many there are in all of this run.
    run: Cell<u32>,
    /// How many the thread has put anywhere, with those of this run, up to [`PUT_MOST`].
    put: Cell<u32>,
    /// The worker.
    at: Cell<usize>,
    /// How many workers there are. Most likely it is the same runtime if they are as many.
    of: Cell<usize>,
}

/// So many timers of one thread that is no worker go to all workers in turn; of those that follow, so many at least to
/// one, then to the next.
const STAY_FOR: u32 = 64;
/// And as many as one in so many of all that came before, so that no worker gets many more than the others.
const SHARE: u32 = 8;
/// But no more than so many: the nodes of these are still in a cache when the worker reads them.
const STAY_MOST: u32 = 4096;
/// Nothing depends on more than that.
const PUT_MOST: u32 = SHARE * STAY_MOST;
/// From so many on the worker is woken when the thread leaves it, if it sleeps. The system call is little
/// for so many; and it is what a worker reads before it looks at what is due.
const MANY: u32 = 1024;

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

/// As [`spread`], for one of so many workers; but a thread that calls it often is told the same many times before the
/// next. When those were [`MANY`] it calls `leave` with it.
#[inline]
pub(crate) fn stay(of: usize, leave: impl FnOnce(usize)) -> usize {
    let at = STAY.try_with(|stay| {
        let left = stay.left.get();
        let stays = left > 0 && stay.of.get() == of;
        stays.then(|| {
            stay.left.set(left - 1);
            stay.at.get()
        })
    });
    match at {
        Ok(Some(at)) => at,
        Ok(None) => STAY.with(|stay| stay.go_on(of, leave)),
        Err(_) => 0,
    }
}

/// The calling thread has met another where it puts its timers: it goes on to the next worker, unless it has just come. Two
/// threads that are equally fast would stay together otherwise, one behind the other, and take the same lines from each other
/// for each timer.
#[cold]
pub(crate) fn make_way() {
    // At a thread's end there is nothing to go on with.
    _ = STAY.try_with(|stay| {
        let left = stay.left.take();
        let run = stay.run.get() - left;
        if run < STAY_FOR {
            return stay.left.set(left);
        }
        stay.run.set(run);
        stay.put.set(stay.put.get().saturating_sub(left));
    });
}

impl Stay {
    const fn new() -> Self {
        Self {
            left: Cell::new(0),
            run: Cell::new(0),
            put: Cell::new(0),
            at: Cell::new(0),
            of: Cell::new(0),
        }
    }

    /// Begins the next run.
    #[cold]
    fn go_on(&self, of: usize, leave: impl FnOnce(usize)) -> usize {
        if self.run.get() >= MANY && self.of.get() == of {
            leave(self.at.get());
        }
        let put = self.put.get();
        let run = if put < STAY_FOR {
            1
        } else {
            (put / SHARE).clamp(STAY_FOR, STAY_MOST)
        };
        let at = spread().checked_rem(of).unwrap_or(0);
        self.left.set(run - 1);
        self.run.set(run);
        self.put.set(PUT_MOST.min(put + run));
        self.at.set(at);
        self.of.set(of);
        at
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// How many timers in a row go to one worker, and how many of these runs it was left after, of so many timers.
    fn runs(timers: usize) -> (Vec<usize>, Vec<usize>) {
        let arm = move || {
            let (mut runs, mut left) = (Vec::<(usize, usize)>::new(), Vec::new());
            for _ in 0..timers {
                let mut after = None;
                let at = stay(usize::MAX, |at| after = Some(at));
                if let Some(after) = after {
                    assert_eq!(runs.last().unwrap().0, after, "the one that it leaves");
                    left.push(runs.len() - 1);
                }
                match runs.last_mut() {
                    Some((last, count)) if *last == at => *count += 1,
                    _ => runs.push((at, 1)),
                }
            }
            let runs = runs.into_iter().map(|(_, count)| count).collect();
            (runs, left)
        };
        thread::spawn(arm).join().unwrap()
    }

    #[test]
    fn a_threads_first_timers_are_spread_one_by_one_and_then_stay_for_a_while() {
        let first = STAY_FOR as usize;
        let (runs, left) = runs(3 * first);
        assert_eq!(runs[..first], vec![1; first]);
        assert_eq!(runs[first..], [first, first]);
        assert!(left.is_empty(), "nobody is woken for so few");
    }

    #[test]
    fn they_stay_the_longer_the_more_there_are_but_never_for_many_more_than_came_before() {
        let (runs, left) = runs(200_000);
        let mut before = STAY_FOR as usize;
        for &run in &runs[STAY_FOR as usize..] {
            assert!(run <= STAY_FOR as usize || run <= before / SHARE as usize);
            before += run;
        }
        let (_, full) = runs.split_last().unwrap();
        assert_eq!(full.last(), Some(&(STAY_MOST as usize)));
        let many = |run: &usize| full[*run] >= MANY as usize;
        assert_eq!(left, (0..full.len()).filter(many).collect::<Vec<_>>());
    }

    #[test]
    fn who_meets_another_goes_on_but_not_at_once() {
        let turns = || {
            let next = || stay(usize::MAX, |_| panic!("nobody is woken for so few"));
            // Until one has begun that is longer than the shortest.
            while STAY.with(|stay| stay.run.get()) <= STAY_FOR {
                next();
            }
            let at = next();
            make_way();
            assert_eq!(next(), at, "it has just come");
            while STAY.with(|stay| stay.run.get() - stay.left.get()) < STAY_FOR {
                assert_eq!(next(), at);
            }
            let put = STAY.with(|stay| stay.put.get() - stay.left.get());
            make_way();
            assert_eq!(
                STAY.with(|stay| stay.put.get()),
                put,
                "those alone that were put"
            );
            assert_ne!(next(), at);
        };
        thread::spawn(turns).join().unwrap();
    }

    #[test]
    fn another_runtime_begins_another_run() {
        let turns = || {
            (0..3 * STAY_FOR).for_each(|_| _ = stay(usize::MAX, |_| ()));
            (stay(1, |_| unreachable!()), stay(0, |_| unreachable!()))
        };
        assert_eq!(thread::spawn(turns).join().unwrap(), (0, 0));
    }
}
