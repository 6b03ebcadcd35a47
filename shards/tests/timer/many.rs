//! New timers that are armed together, by the owner and by another thread.

use crate::common::{Scripted, both_ways, turn};
use std::sync::{Arc, Mutex};
use tourbillon_shards::{Cancel, NEVER, NewTimers, Outcome, Shard, Status, Timer};

type Order = Arc<Mutex<Vec<u64>>>;

/// Returns timers that are not armed. They are due at these moments, and record them.
fn new(shard: &Arc<Shard<Scripted>>, deadlines: &[u64], order: &Order) -> NewTimers<Scripted> {
    let mut timers = NewTimers::new(shard, deadlines.len());
    for &at in deadlines {
        let order = order.clone();
        timers.once(at, at, None, move || order.lock().unwrap().push(at));
    }
    timers
}

#[test]
fn they_run_in_the_order_of_their_deadlines() {
    both_ways(|shard| {
        let order = Order::default();
        let mut timers = new(shard, &[30, 10, 20, 40], &order);
        timers.refused();
        assert_eq!(shard.next_deadline(), NEVER, "they are not armed");
        let timers = timers.arm();
        assert_eq!(shard.next_deadline(), 10);
        let deadlines: Vec<_> = timers.iter().map(Timer::deadline).collect();
        assert_eq!(deadlines, [Some(30), Some(10), Some(20), Some(40), None]);
        assert_eq!(timers[4].status(), Status::Over(Outcome::Refused));
        assert_eq!(timers[2].cancel(), Cancel::Cancelled);
        turn(shard, 35);
        assert_eq!(*order.lock().unwrap(), [10, 30]);
        assert_eq!(timers[3].status(), Status::Pending);
    });
}

#[test]
fn a_list_that_is_dropped_arms_them() {
    both_ways(|shard| {
        let order = Order::default();
        drop(new(shard, &[2, 1], &order));
        drop(new(shard, &[], &order));
        turn(shard, 2);
        assert_eq!(*order.lock().unwrap(), [1, 2]);
    });
}

#[test]
fn a_closed_shard_ends_each() {
    both_ways(|shard| {
        let order = Order::default();
        let timers = new(shard, &[1, 2, 3], &order);
        drop(shard.close());
        for timer in timers.arm() {
            assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        }
        assert_eq!(Arc::strong_count(&order), 1, "the callbacks are dropped");
    });
}

#[test]
fn all_get_the_tolerance_of_the_thread() {
    both_ways(|shard| {
        let order = Order::default();
        shard.owner().set_tolerance(1 << 20);
        let timers = new(shard, &[1_000_000, 1_000_001], &order).arm();
        shard.owner().set_tolerance(0);
        let exact = Timer::once(shard, 5_000_000, 1, || ());
        let wakes = shard.next_deadline();
        assert!(wakes > 1_000_001, "both wait for one round moment");
        turn(shard, wakes);
        assert_eq!(order.lock().unwrap().len(), 2);
        assert!(timers.iter().all(|timer| timer.deadline().is_none()));
        assert_eq!(shard.next_deadline(), 5_000_000);
        exact.cancel();
    });
}

/// A remote thread wakes an owner once if it sleeps past the earliest deadline, and not otherwise.
#[test]
fn the_owner_is_woken_once_for_all() {
    let order = Order::default();
    for (deadlines, wakes) in [([60, 40, 70], 1), ([60, 50, 70], 0)] {
        let shard = Scripted::shard(true);
        let sleeps = Timer::once(&shard, 50, 50, || ());
        assert_eq!(shard.sleep_until(), Some(50));
        shard.owner().set_local(false);
        let timers = new(&shard, &deadlines, &order).arm();
        assert_eq!(
            shard
                .owner()
                .wakes
                .load(std::sync::atomic::Ordering::Relaxed),
            wakes
        );
        drop((sleeps, timers, shard.close()));
    }
}
