//! Shrinking a shard's store, when it is much too large.

use super::*;

/// The timers that stay are found by their handles, and come due in their order, whatever their
/// slots are then.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn shrinking_keeps_all_timers_and_their_order() {
    for (kind, stay) in StoreKind::ALL
        .into_iter()
        .flat_map(|kind| [0, 1, 40].map(|n| (kind, n)))
    {
        let shard = Arc::new(Shard::new(Loop::default()).with_store(kind));
        let room = || shard.locked(|inner| inner.room()).unwrap();
        let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut timers: Vec<_> = (0..2_000)
            .map(|i| {
                let ran = ran.clone();
                // All deadlines are different. Some timers are moved, and the wheel leaves notes of
                // that.
                let timer = Timer::once(&shard, 10_000 + i * 7 % 2_000, 1, move || {
                    ran.lock().unwrap().push(i);
                });
                if i % 3 == 0 {
                    timer.reset_at(5_000 + i * 7 % 2_000);
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
        let full = room();
        assert!(shard.shrink());
        assert_eq!(room(), full, "the first call frees nothing");
        assert!(!shard.shrink());
        assert!(room() < full / 4, "{} of {full}", room());
        assert_eq!((shard.next_deadline(), shard.stored()), (next, stored));
        // One timer is moved, one is cancelled, and one is armed.
        let late = timers.split_off(1_007);
        if stay == 40 {
            assert_eq!(late[0].reset_at(20_000), Reset::Waiting);
            assert_eq!(late[50].cancel(), crate::Cancel::Cancelled);
        }
        let _new = Timer::once(&shard, 1, 1, || ());
        let mut due = Vec::new();
        shard.expire(30_000, usize::MAX, &mut due);
        let mut expect: Vec<_> = (0..stay as u64).map(|n| n * 50 + 7).collect();
        let at = |i: &u64| match i {
            1_007 => 20_000,
            i if i % 3 == 0 => 5_000 + i * 7 % 2_000,
            i => 10_000 + i * 7 % 2_000,
        };
        expect.retain(|i| *i != 1_057);
        expect.sort_by_key(at);
        due.into_iter().for_each(|it| _ = it.run(|| 30_000));
        assert_eq!(*ran.lock().unwrap(), expect);
        assert_eq!(shard.stored(), 1, "the timer that never fires");
        drop((never, late, timers, shard.close()));
    }
}

/// A shrink holds the lock while it moves timers, and timers that come due meanwhile are late. So a
/// store with many timers stays as it is.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn a_store_with_many_timers_does_not_shrink() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let room = || shard.locked(|inner| inner.room()).unwrap();
    let timers = arm(&shard, 2_000);
    let full = room();
    // An eighth of the room is held, or less.
    let stay = crate::shard::inner::MAX_MOVED + 1;
    assert!(stay <= full / 8);
    timers[stay..].iter().for_each(|it| _ = it.cancel());
    assert!(!shard.shrink(), "no later call is needed");
    assert!(!shard.shrink());
    assert_eq!(room(), full);
    timers[0].cancel();
    assert!(shard.shrink() && !shard.shrink());
    assert!(room() < full, "{} of {full}", room());
    drop((timers, shard.close()));
}

/// A store is kept if more than an eighth of it is held, or if it is small.
#[test]
fn a_store_that_is_not_much_too_large_does_not_shrink() {
    for (armed, room, stay, shrinks) in [
        (255, 256, 33, false),
        (255, 256, 32, true),
        (63, 64, 1, false),
        (65, 128, 1, true),
    ] {
        let shard = Arc::new(Shard::new(Loop::default()));
        let timers = arm(&shard, armed);
        assert_eq!(shard.locked(|inner| inner.room()), Some(room));
        timers[stay..].iter().for_each(|it| _ = it.cancel());
        assert_eq!(shard.shrink(), shrinks, "{stay} of {room}");
        drop((timers, shard.close()));
    }
}

/// The keys of timers that may be late are not their deadlines.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn shrinking_keeps_the_keys_of_timers_that_may_be_late() {
    let shard = Arc::new(Shard::new(Loop::default()));
    let tolerant = |tolerance| {
        let options = crate::Options {
            tolerance,
            ..crate::Options::default()
        };
        let timer = Timer::build(&shard, 1_000, None, options, |_| {
            std::ops::ControlFlow::Continue(())
        });
        timer.start(0);
        timer
    };
    let some = [tolerant(24), tolerant(0)];
    let many: Vec<_> = (0..2_000).map(|_| tolerant(24)).collect();
    many.iter().for_each(|it| _ = it.cancel());
    assert!(shard.shrink() && !shard.shrink());
    assert_eq!((shard.next_deadline(), shard.soonest()), (1_000, 1_000));
    some[1].cancel();
    assert_eq!((shard.next_deadline(), shard.soonest()), (1_024, 1_000));
    some[0].cancel();
    assert_eq!(shard.next_deadline(), NEVER);
    drop((some, many, shard.close()));
}
