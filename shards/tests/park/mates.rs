//! Owners of one group, which serve each other's timers.

use tourbillon_sched::Sleeper;
use tourbillon_shards::{Leaning, Mate, Mates, NEVER, Timer, store::StoreKind};

use crate::common::Scripted;

#[test]
fn an_owner_wakes_up_for_its_own_timers_and_for_those_of_one_that_leans() {
    let shards = [(); 2].map(|()| Scripted::deferring(true, StoreKind::default()));
    let [own, others] = [(0, 100), (1, 50)].map(|(owner, at)| {
        let shard = &shards[owner];
        Timer::once(shard, at, at, || ())
    });
    let leaning = Leaning::new();
    let mates = Mates::new(&leaning, &shards, 0, 1);
    let next = || {
        let alone = Mate::new(&shards[0], None, 0).next_deadline();
        let grouped = Mate::new(&shards[0], Some((mates, 0)), 0).next_deadline();
        (alone, grouped)
    };
    assert_eq!(next(), (100, 100));
    // The other owner leans on this one, which is awake.
    shards[1].defer(1_000);
    let other = Mate::new(&shards[1], Some((mates, 1)), NEVER);
    assert_eq!(other.announce_sleep(), NEVER);
    assert!(other.leans() && leaning.leans(1));
    assert_eq!(next(), (100, 50));
    other.end_sleep();
    assert_eq!(next(), (100, 100));
    own.cancel();
    others.cancel();
    assert_eq!(next(), (NEVER, NEVER));
    for shard in &shards {
        drop(shard.close());
    }
}
