//! Garbage is bounded while the owner is blocked. Of the nodes that other threads cancelled, at
//! most `max(64, live / 4)` plus one batch remain, in the store or in the inbox.
//!
//! The count is independent of the sweeping: each node holds a reference to its owning shard. So
//! the garbage is the number of these references minus the live timers.

use std::{
    sync::{Arc, Barrier, Mutex, atomic::Ordering::Relaxed, mpsc},
    thread,
};

use crate::common::{Drops, Scripted, Threaded, expire, times};
use tourbillon_shards::{Cancel, Flow, NEVER, Options, Owner, Reset, Shard, Timer};

/// How many nodes are read while the lock is held once.
const BATCH: usize = 256;

type Timers<O = Threaded> = Vec<Timer<O>>;

fn arm<O: Owner>(shard: &Arc<Shard<O>>, count: usize) -> Timers<O> {
    (0..count as u64)
        .map(|at| Timer::once(shard, 1_000_000 + at % 1_000, 0, || panic!("never due")))
        .collect()
}

fn cancel<O: Owner>(timer: Timer<O>) {
    assert_eq!(timer.cancel(), Cancel::Cancelled);
}

/// Returns how many cancelled timers are left. No other thread may use the shard during this call.
fn garbage<O: Owner>(shard: &Shard<O>, live: usize) -> usize {
    shard.references() - live
}

fn bound(live: usize) -> usize {
    (live / 4).max(64) + BATCH
}

#[derive(Clone, Copy, Debug)]
enum Order {
    OldestFirst,
    NewestFirst,
    Shuffled,
}

impl Order {
    /// Moves the timer to cancel first to the end, because timers are popped from there.
    fn arrange(self, timers: &mut Timers) {
        match self {
            Order::OldestFirst => timers.reverse(),
            Order::NewestFirst => {}
            Order::Shuffled => {
                let mut seed = 0x2545_F491_4F6C_DD1D_u64;
                for at in (1..timers.len()).rev() {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    timers.swap(at, seed as usize % (at + 1));
                }
            }
        }
    }
}

/// Cancels all timers from this thread, which is not the owner, and checks the bound after each.
fn cancel_all_within_the_bound(shard: &Shard<Threaded>, mut timers: Timers) {
    while let Some(timer) = timers.pop() {
        cancel(timer);
        let live = timers.len();
        let garbage = garbage(shard, live);
        assert!(garbage <= bound(live), "{garbage} for {live} live ones");
        let known = shard.garbage();
        assert!(known >= garbage, "{garbage}, of which it knows {known}");
    }
}

/// Runs `f` on another thread while the owner waits for it, like a blocked owner.
fn while_the_owner_is_blocked<R: Send>(
    shard: &Arc<Shard<Threaded>>,
    f: impl FnOnce() -> R + Send,
) -> R {
    let result = thread::scope(|scope| scope.spawn(f).join().unwrap());
    assert!(shard.next_deadline() <= NEVER);
    result
}

/// Cancels timers that the owner has armed, and that are in its store.
fn armed_by_the_owner(count: usize, order: Order) {
    let shard = Threaded::shard();
    let mut timers = arm(&shard, count);
    assert_eq!(shard.stored(), count);
    order.arrange(&mut timers);
    while_the_owner_is_blocked(&shard, || cancel_all_within_the_bound(&shard, timers));
    assert!(shard.stored() <= bound(0), "{} stored", shard.stored());
    drop(shard.close());
    assert_eq!(Arc::strong_count(&shard), 1);
}

#[test]
#[cfg_attr(miri, ignore = "needs a million timers")]
fn a_million_timers_of_a_blocked_owner_are_cancelled() {
    armed_by_the_owner(1_000_000, Order::OldestFirst);
}

#[test]
fn timers_of_a_blocked_owner_are_cancelled_in_any_order() {
    for order in [Order::OldestFirst, Order::NewestFirst, Order::Shuffled] {
        armed_by_the_owner(times(20_000), order);
    }
}

/// All timers are in the inbox: first the ones that stay pending, then the cancelled ones.
#[test]
fn timers_in_the_inbox_of_a_blocked_owner_are_cancelled() {
    for order in [Order::OldestFirst, Order::NewestFirst, Order::Shuffled] {
        let shard = Threaded::shard();
        while_the_owner_is_blocked(&shard, || {
            // More than one batch and the bound.
            let mut timers = arm(&shard, if cfg!(miri) { 400 } else { 100_000 });
            order.arrange(&mut timers);
            cancel_all_within_the_bound(&shard, timers);
        });
        drop(shard.close());
        assert_eq!(Arc::strong_count(&shard), 1);
    }
}

/// The most common load: each request arms a timeout and cancels it soon after. Some thousands are
/// pending at a time.
#[test]
fn timeouts_that_are_cancelled_soon_leave_little_garbage() {
    let shard = Threaded::shard();
    while_the_owner_is_blocked(&shard, || {
        let mut under_way = std::collections::VecDeque::from(arm(&shard, times(4_000)));
        for _ in 0..times(100_000) {
            under_way.extend(arm(&shard, 1));
            cancel(under_way.pop_front().expect("thousands are under way"));
            let garbage = garbage(&shard, under_way.len());
            assert!(garbage <= bound(under_way.len()), "{garbage}");
        }
    });
    drop(shard.close());
}

/// Timers that are cancelled while a thread holds the shard may exceed the bound. As soon as the
/// shard is free, each further cancel sweeps one batch.
#[test]
fn several_threads_cancel_at_once() {
    const THREADS: usize = 4;
    const ROUNDS: usize = times(20);
    const EACH: usize = if cfg!(miri) { 100 } else { 1_500 };
    let shard = Threaded::shard();
    let mut spare = arm(&shard, times(20_000));
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let (give, heaps): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<Timers>()).unzip();
    let threads: Vec<_> = heaps
        .into_iter()
        .map(|heap| {
            let barrier = barrier.clone();
            thread::spawn(move || {
                for timers in heap {
                    barrier.wait();
                    timers.into_iter().for_each(cancel);
                    barrier.wait();
                }
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        for give in &give {
            give.send(arm(&shard, EACH)).unwrap();
        }
        barrier.wait();
        barrier.wait();
        // The owner is still blocked. Another thread goes on cancelling.
        while_the_owner_is_blocked(&shard, || {
            let left = garbage(&shard, spare.len());
            for _ in 0..left.div_ceil(BATCH) {
                cancel(spare.pop().expect("there are enough for all rounds"));
            }
            let garbage = garbage(&shard, spare.len());
            assert!(garbage <= bound(spare.len()), "{garbage} of {left}");
        });
    }
    drop(give);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(spare);
    drop(shard.close());
    assert_eq!(Arc::strong_count(&shard), 1);
}

/// Cancels its timers when it is dropped.
struct CancelsAtDrop(Timers<Scripted>);

impl Drop for CancelsAtDrop {
    fn drop(&mut self) {
        self.0.drain(..).for_each(cancel);
    }
}

/// Starts a timer with a condition.
fn with_condition<O: Owner>(
    shard: &Arc<Shard<O>>,
    deadline: u64,
    condition: impl Fn() -> bool + Send + Sync + 'static,
) -> Timer<O> {
    let options = Options {
        deadline: Some(deadline),
        condition: Some(Box::new(condition)),
        ..Options::default()
    };
    let timer = Timer::build(shard, 5, options, |_| Flow::Continue(()));
    timer.start(0);
    timer
}

/// A thread may be denied the lock while the holder reads a batch for others that were denied. Then
/// the holder leaves the updates, and wakes the owner.
///
/// The shard calls and drops conditions with its lock held. So two conditions stand here for the
/// threads that are denied, although a condition must not use the crate.
#[test]
fn a_thread_that_is_denied_while_the_holder_reads_for_others_is_left_to_the_owner() {
    let shard = Scripted::shard(true);
    let crowd = CancelsAtDrop(arm(&shard, 2 * BATCH));
    let second = with_condition(&shard, 2_000_000, move || !crowd.0.is_empty());
    let second = Mutex::new(Some(second));
    // The holder of the lock finds this timer moved, and asks for its condition. That cancels
    // `second`, and is denied the lock. The holder reads this update for the first denied thread,
    // and frees the node with its condition. That cancels the crowd, and is denied again.
    let first = with_condition(&shard, 10, move || {
        second.lock().unwrap().take().into_iter().for_each(cancel);
        true
    });
    assert_eq!(first.reset_at(3_000_000), Reset::Pending);
    assert!(shard.sleep_until().is_some(), "the owner goes to sleep");
    assert!(expire(&shard, 10, usize::MAX).is_empty());
    assert_eq!(
        (shard.garbage(), garbage(&shard, 1)),
        (2 * BATCH, 2 * BATCH)
    );
    assert_eq!(shard.owner().wakes.load(Relaxed), 1);
    // The owner is awake now, and reads them.
    shard.resume();
    assert!(expire(&shard, 10, usize::MAX).is_empty());
    assert_eq!((shard.garbage(), garbage(&shard, 1)), (0, 0));
    assert_eq!((shard.stored(), shard.owner().wakes.load(Relaxed)), (1, 1));
    drop(shard.close());
}

/// A call that reads all updates reads those that there were when it began. So it ends although
/// others arm timers all the time.
///
/// A condition stands for the others, as above: each node that is freed leaves an update.
#[test]
fn a_call_that_reads_all_updates_ends_although_there_are_always_more() {
    /// Cancels a timer that has another one, when it is dropped.
    struct Next(Arc<Shard<Scripted>>, usize);
    impl Drop for Next {
        fn drop(&mut self) {
            if let Some(left) = self.1.checked_sub(1) {
                let next = Next(self.0.clone(), left);
                let alive = move || Arc::strong_count(&next.0) > 0;
                cancel(with_condition(&self.0, 2_000_000, alive));
            }
        }
    }
    let shard = Scripted::shard(false);
    drop(Next(shard.clone(), 3));
    for left in [2, 1, 0] {
        assert!(shard.has_updates());
        assert_eq!(shard.settle(), NEVER);
        assert_eq!(
            shard.has_updates(),
            left > 0,
            "it was read in the same call"
        );
    }
    drop(shard.close());
}

/// Timers that the owner itself cancels leave no garbage.
#[test]
fn timers_that_the_owner_cancels_leave_no_garbage() {
    let shard = Threaded::shard();
    let mut timers = arm(&shard, times(10_000));
    while let Some(timer) = timers.pop() {
        cancel(timer);
        assert_eq!(garbage(&shard, timers.len()), 0);
        assert_eq!(shard.stored(), timers.len());
    }
    assert_eq!(shard.next_deadline(), NEVER);
    drop(shard.close());
}

/// A cancel drops the payload at once, whenever the node is freed.
#[test]
fn payloads_are_dropped_before_their_nodes() {
    let shard = Threaded::shard();
    let drops = Drops::default();
    while_the_owner_is_blocked(&shard, || {
        for count in 1..=times(1_000) as u32 {
            let probe = drops.probe();
            let timer = Timer::once(&shard, 5, 5, move || drop(probe));
            cancel(timer);
            assert_eq!(drops.get(), count);
        }
    });
    drop(shard.close());
    assert_eq!(drops.get(), times(1_000) as u32);
}
