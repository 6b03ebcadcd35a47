//! What a shard says of its inbox and of the timers that are cancelled in it.

use crate::common::Scripted;
use tourbillon_shards::{Cancel, Reset, Timer};

#[test]
fn sweeps_count_how_often_the_inbox_had_updates() {
    let shard = Scripted::shard(true);
    let timer = |at| Timer::once(&shard, at, 1, || ());
    let mut timers = vec![timer(1)];
    assert_eq!((shard.settle(), shard.sweeps()), (1, 0), "the owner's own");
    shard.owner().set_local(false);
    timers.extend([timer(2), timer(3)]);
    assert_eq!((shard.settle(), shard.sweeps()), (1, 1));
    assert_eq!((shard.settle(), shard.sweeps()), (1, 1), "nothing was new");
    timers.push(timer(0));
    assert_eq!((shard.settle(), shard.sweeps()), (0, 2));
    let drained = shard.close();
    assert_eq!((drained.len(), drained.is_empty()), (4, false));
    drop(drained);
    assert!(shard.close().is_empty());
    drop(timers);
}

#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn garbage_may_be_a_quarter_of_the_live_timers() {
    let shard = Scripted::shard(true);
    shard.owner().set_local(false);
    let count = 10 * 64;
    let timers: Vec<_> = (0..count as u64)
        .map(|i| Timer::once(&shard, i, 1, || ()))
        .collect();
    shard.settle();
    // One fifth of all is a quarter of the others.
    for (i, timer) in timers.iter().enumerate() {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        if i == count / 5 {
            assert_eq!(shard.garbage(), 0, "all was freed");
            break;
        }
        assert_eq!(shard.garbage(), i + 1);
    }
    drop((timers, shard.close()));
}

#[test]
fn the_owner_moves_a_timer_in_its_store_at_once() {
    let shard = Scripted::shard(true);
    let timer = Timer::once(&shard, 1_000, 1_000, || ());
    assert_eq!(timer.reset_at(500), Reset::Pending);
    assert_eq!((shard.next_deadline(), shard.has_updates()), (500, false));
    drop((timer, shard.close()));
}
