//! `settle` returns the exact earliest deadline, where `next_deadline` only promises not to be too
//! late.

use crate::common::{Scripted, turn};
use tourbillon_shards::{NEVER, Sleep, Timer};

#[test]
fn settle_reads_updates_and_removes_ended_timers() {
    for (armed_here, changed_here) in [(true, true), (true, false), (false, true), (false, false)] {
        let shard = Scripted::shard(armed_here);
        let arm = |deadline| Timer::once(&shard, deadline, 0, || ());
        let (cancelled, moved, never, earlier) = (arm(10), arm(20), arm(30), arm(90));
        let sleep = Sleep::new(&shard, 15);
        assert_eq!(shard.settle(), 10);
        shard.owner().set_local(changed_here);
        cancelled.cancel();
        moved.reset_at(70);
        never.reset_at(NEVER);
        earlier.reset_at(80);
        drop(sleep);
        assert_eq!(shard.settle(), 70);
        assert_eq!(shard.next_deadline(), 70, "what was found is published");
        assert!(!shard.has_updates());
        moved.cancel();
        assert_eq!(shard.settle(), 80);
        earlier.cancel();
        assert_eq!(shard.settle(), NEVER);
        assert_eq!(turn(&shard, NEVER), 0);
        drop(shard.close());
    }
}

#[test]
fn settle_reads_more_than_one_batch() {
    let shard = Scripted::shard(false);
    let timers: Vec<_> = (0..1_000)
        .map(|i| Timer::once(&shard, 10_000 - i, 0, || ()))
        .collect();
    assert_eq!(shard.settle(), 9_001);
    assert_eq!(shard.stored(), timers.len());
    assert_eq!(turn(&shard, 10_000), timers.len());
    assert_eq!(shard.settle(), NEVER);
    drop(shard.close());
}
