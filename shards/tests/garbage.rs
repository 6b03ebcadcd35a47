//! Garbage is bounded while the owner is blocked: of what other threads cancelled, at most
//! `max(64, live / 4)` and one batch are left as nodes, wherever they stand.
//!
//! It is counted by what has no part in the sweeping: each node holds a reference to its home, so what the
//! count of these exceeds the live timers by is garbage.
#![cfg(not(loom))]

mod common;

use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
};

use common::Threaded;
use tourbillon_shards::{Cancel, NEVER, Shard, Timer};

/// How much is read under one hold of the lock.
const BATCH: usize = 256;

type Timers = Vec<Timer<Threaded>>;

fn arm(shard: &Arc<Shard<Threaded>>, count: usize) -> Timers {
    (0..count as u64)
        .map(|at| Timer::once(shard, 1_000_000 + at % 1_000, 0, || panic!("never due")))
        .collect()
}

fn cancel(timer: Timer<Threaded>) {
    assert_eq!(timer.cancel(), Cancel::Cancelled);
}

/// Cancelled timers that are still somewhere. For a moment in which nobody else does anything.
fn garbage(shard: &Shard<Threaded>, live: usize) -> usize {
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
    /// Puts the first to cancel last, from where it is popped.
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

/// Cancels all from this thread, which is not the owner, and looks after each.
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

/// Runs `f` on another thread while the owner waits for it, which is what a blocked owner does.
fn while_the_owner_is_blocked<R: Send>(
    shard: &Arc<Shard<Threaded>>,
    f: impl FnOnce() -> R + Send,
) -> R {
    let result = thread::scope(|scope| scope.spawn(f).join().unwrap());
    assert!(shard.next_deadline() <= NEVER);
    result
}

/// The owner armed them, and they are in its store.
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
fn a_million_timers_of_a_blocked_owner_are_cancelled() {
    armed_by_the_owner(1_000_000, Order::OldestFirst);
}

#[test]
fn timers_of_a_blocked_owner_are_cancelled_in_any_order() {
    for order in [Order::OldestFirst, Order::NewestFirst, Order::Shuffled] {
        armed_by_the_owner(20_000, order);
    }
}

/// They stand in the inbox: those that live, too, and first.
#[test]
fn timers_that_the_owner_never_saw_are_cancelled() {
    for order in [Order::OldestFirst, Order::NewestFirst, Order::Shuffled] {
        let shard = Threaded::shard();
        while_the_owner_is_blocked(&shard, || {
            let mut timers = arm(&shard, 100_000);
            order.arrange(&mut timers);
            cancel_all_within_the_bound(&shard, timers);
        });
        drop(shard.close());
        assert_eq!(Arc::strong_count(&shard), 1);
    }
}

/// The commonest load: each request arms a timeout, and cancels it soon after; some thousands are
/// under way at a time.
#[test]
fn timeouts_that_come_and_go_leave_little() {
    let shard = Threaded::shard();
    while_the_owner_is_blocked(&shard, || {
        let mut under_way = std::collections::VecDeque::from(arm(&shard, 4_000));
        for _ in 0..100_000 {
            under_way.extend(arm(&shard, 1));
            cancel(under_way.pop_front().expect("thousands are under way"));
            let garbage = garbage(&shard, under_way.len());
            assert!(garbage <= bound(under_way.len()), "{garbage}");
        }
    });
    drop(shard.close());
}

/// What is cancelled while somebody has the shard comes on top; but as soon as nobody has, each
/// further cancel sweeps up a batch.
#[test]
fn several_threads_cancel_at_once() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20;
    const EACH: usize = 1_500;
    let shard = Threaded::shard();
    let mut spare = arm(&shard, 20_000);
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
        // The owner is blocked all the while; somebody else cancels on.
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

/// The owner's own cancels leave nothing at all.
#[test]
fn the_owner_sweeps_at_once() {
    let shard = Threaded::shard();
    let mut timers = arm(&shard, 10_000);
    while let Some(timer) = timers.pop() {
        cancel(timer);
        assert_eq!(garbage(&shard, timers.len()), 0);
        assert_eq!(shard.stored(), timers.len());
    }
    assert_eq!(shard.next_deadline(), NEVER);
    drop(shard.close());
}

/// A payload goes with the cancel, whatever becomes of its node.
#[test]
fn payloads_are_gone_before_the_garbage_is() {
    let shard = Threaded::shard();
    let drops = common::Drops::default();
    while_the_owner_is_blocked(&shard, || {
        for count in 1..=1_000 {
            let probe = drops.probe();
            let timer = Timer::once(&shard, 5, 5, move || drop(probe));
            cancel(timer);
            assert_eq!(drops.get(), count);
        }
    });
    drop(shard.close());
    assert_eq!(drops.get(), 1_000);
}
