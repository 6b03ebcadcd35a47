//! A store is given up for a smaller one when it is much too large.

use std::sync::{Arc, Mutex};

use crate::common::Scripted;
use tourbillon_shards::{Cancel, Flow, NEVER, Options, Reset, Timer, Tolerance, store::StoreKind};

/// The timers that stay are found by their handles, and come due in their order, whatever their
/// slots are then.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn shrinking_keeps_all_timers_and_their_order() {
    for (kind, stay) in StoreKind::ALL
        .into_iter()
        .flat_map(|kind| [0, 1, 40].map(|n| (kind, n)))
    {
        let shard = Scripted::shard_with(true, kind);
        let ran = Arc::new(Mutex::new(Vec::new()));
        let mut timers: Vec<_> = (0..20_000)
            .map(|i| {
                let ran = ran.clone();
                // All deadlines are different. Some timers are moved, and the wheel leaves notes of
                // that.
                let timer = Timer::once(&shard, 100_000 + i * 7 % 20_000, 1, move || {
                    ran.lock().unwrap().push(i);
                });
                if i % 3 == 0 {
                    timer.reset_at(50_000 + i * 7 % 20_000);
                }
                timer
            })
            .collect();
        let never = Timer::once(&shard, NEVER, 1, || ());
        assert!(!shard.shrink(), "all of it is in use");
        for (i, timer) in timers.iter().enumerate() {
            if i % 50 != 7 || i / 50 >= stay {
                timer.cancel();
            }
        }
        let (next, stored) = (shard.next_deadline(), shard.stored());
        assert_eq!(stored, stay + 1);
        assert!(shard.shrink());
        assert!(!shard.shrink());
        assert_eq!((shard.next_deadline(), shard.stored()), (next, stored));
        // One timer is moved, one is cancelled, and one is armed.
        let late = timers.split_off(1_007);
        if stay == 40 {
            assert_eq!(late[0].reset_at(200_000), Reset::Pending);
            assert_eq!(late[50].cancel(), Cancel::Cancelled);
        }
        let _new = Timer::once(&shard, 1, 1, || ());
        let mut due = Vec::new();
        shard.expire(300_000, usize::MAX, &mut due);
        let mut expect: Vec<_> = (0..stay as u64).map(|n| n * 50 + 7).collect();
        let at = |i: &u64| match i {
            1_007 => 200_000,
            i if i % 3 == 0 => 50_000 + i * 7 % 20_000,
            i => 100_000 + i * 7 % 20_000,
        };
        expect.retain(|i| *i != 1_057);
        expect.sort_by_key(at);
        due.into_iter().for_each(|it| _ = it.run(|| 300_000));
        assert_eq!(*ran.lock().unwrap(), expect);
        assert_eq!(shard.stored(), 1, "the timer that never fires");
        drop((never, late, timers, shard.close()));
    }
}

/// The keys of timers that may be late are not their deadlines.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn shrinking_keeps_the_keys_of_timers_that_may_be_late() {
    let shard = Scripted::shard(true);
    let tolerant = |tolerance| {
        let options = Options {
            tolerance: Tolerance::new(tolerance),
            ..Options::default()
        };
        let timer = Timer::build(&shard, 1_000, options, |_| Flow::Continue(()));
        timer.start(0);
        timer
    };
    let some = [tolerant(24), tolerant(0)];
    let many: Vec<_> = (0..20_000).map(|_| tolerant(24)).collect();
    many.iter().for_each(|it| _ = it.cancel());
    assert!(shard.shrink() && !shard.shrink());
    assert_eq!((shard.next_deadline(), shard.soonest()), (1_000, 1_000));
    some[1].cancel();
    assert_eq!((shard.next_deadline(), shard.soonest()), (1_024, 1_000));
    some[0].cancel();
    assert_eq!(shard.next_deadline(), NEVER);
    drop((some, many, shard.close()));
}
