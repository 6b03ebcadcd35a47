//! Tests of small wheels, which count what each step moves, splits, notes, sweeps and prefetches.

use super::super::{front::SWEEP_BATCH, levels::LEVELS, *};
use crate::store::keys::UNCACHED;

/// Returns a wheel whose `base` is 1, with the key 1 and so many keys in one bucket, from 2^30 on.
/// Their slots begin at 1.
fn with_a_bucket(keys: u64) -> Wheel {
    let mut wheel = Wheel::new();
    for key in 0..=keys {
        wheel.insert(if key == 0 { 1 } else { FAR + key });
    }
    assert_eq!((wheel.levels.base, wheel.levels.count), (1, keys as usize));
    wheel
}

const FAR: u64 = 1 << 30;

#[test]
fn a_move_within_a_bucket_leaves_no_stale_entry() {
    let mut wheel = with_a_bucket(20);
    for key in [FAR + 60, FAR + 600_000, 2 * FAR - 1] {
        wheel.rekey(7, key);
        assert_eq!((wheel.levels.count, wheel.stale()), (20, 0));
    }
    wheel.rekey(7, 2 * FAR);
    assert_eq!((wheel.levels.count, wheel.stale()), (21, 1));
    wheel.check();
}

#[test]
fn a_tree_of_equal_keys_does_not_move() {
    let mut wheel = Wheel::new();
    for _ in 0..MIN_TREE_LIMIT {
        wheel.insert(5);
    }
    assert_eq!((wheel.levels.base, wheel.moves), (u64::MAX, 0));
    wheel.insert(5);
    let moves = wheel.moves;
    assert_eq!(
        (wheel.levels.base, wheel.tree_limit),
        (5, 2 * wheel.tree.len())
    );
    // As many have to come before the next look, which finds nothing to move.
    for _ in 0..=MIN_TREE_LIMIT {
        wheel.insert(5);
    }
    assert_eq!(wheel.tree_limit, wheel.tree.len());
    wheel.insert(5);
    assert_eq!(
        (wheel.tree_limit, wheel.moves),
        (2 * wheel.tree.len(), moves)
    );
    wheel.check();
}

#[test]
fn a_small_bucket_becomes_the_run_and_a_larger_one_is_distributed() {
    // Of seventeen keys each gets a bucket of its own, and the first of these is the run.
    for (keys, run) in [(16, 16), (17, 1), (32, 1)] {
        let mut wheel = with_a_bucket(keys);
        assert!(wheel.pop_due(1, |_| ()).is_some());
        assert_eq!(
            (wheel.run.len(), wheel.levels.base),
            (run as usize, FAR + run)
        );
        wheel.check();
    }
}

/// A bucket is split for its live entries. If half of them are stale, they go, and it stays.
#[test]
fn a_bucket_of_stale_entries_is_not_split() {
    for (stale, splits) in [(17, false), (16, true)] {
        let mut wheel = with_a_bucket(32);
        assert!(
            wheel.levels.place(FAR + 1).is_none(),
            "a full bucket takes more"
        );
        let nodes = wheel.levels.room().1;
        assert_eq!(nodes, LEVELS, "no bucket was split");
        for slot in 1..=stale {
            wheel.remove(slot);
        }
        wheel.insert(FAR + 5);
        assert_eq!(wheel.levels.count, 33 - stale as usize);
        assert_eq!(wheel.levels.room().1 - nodes, usize::from(splits));
        wheel.check();
    }
}

#[test]
fn a_bucket_of_a_split_bucket_takes_slots_quickly() {
    // 33 keys of one bucket, each with another digit of the level below.
    let mut wheel = Wheel::new();
    for key in 0..=33 {
        wheel.insert(if key == 0 { 1 } else { FAR + (key << 24) });
    }
    assert_eq!(wheel.levels.room().1, LEVELS + 1, "the bucket was split");
    // The table of keys has room for some.
    for key in 10..=33 {
        assert!(
            wheel.try_insert(FAR + (key << 24) + 7).is_some(),
            "of {key}"
        );
    }
    assert!(
        wheel.try_insert(FAR + (40 << 24)).is_none(),
        "this bucket has no block"
    );
    wheel.check();
}

#[test]
fn a_large_store_restarts_when_it_gets_empty() {
    for pops in [false, true] {
        for (held, restarts) in [(RESTART as u32 - 1, false), (RESTART as u32, true)] {
            let mut wheel = Wheel::new();
            for key in 0..held {
                wheel.insert(1_000 * u64::from(key));
            }
            // Moves that are due to be swept.
            (0..held).for_each(|slot| wheel.rekey(slot, 1_000 * u64::from(slot) + 1));
            if pops {
                while wheel.pop_due(u64::MAX, |_| ()).is_some() {}
            } else {
                (0..held).for_each(|slot| _ = wheel.remove(slot));
            }
            wheel.check();
            if restarts {
                assert_eq!((wheel.stale(), wheel.levels.room()), (0, (0, LEVELS)));
                assert_eq!(
                    (wheel.stale_budget, wheel.tree_limit),
                    (STALE, MIN_TREE_LIMIT)
                );
            }
            // The slots are handed out in order, and not in the order in which they were freed.
            let slots = [wheel.insert(3), wheel.insert(2), wheel.insert(1)];
            let last = held - 1;
            assert_eq!(
                slots,
                if restarts {
                    [0, 1, 2]
                } else {
                    [last, last - 1, last - 2]
                }
            );
            wheel.check();
        }
    }
}

#[test]
fn as_many_entries_may_be_stale_as_are_live() {
    const KEYS: u64 = 1_000;
    let mut wheel = Wheel::new();
    for i in 0..KEYS {
        wheel.insert(1 + i * 40);
    }
    let mut stale = Vec::new();
    for i in 1..KEYS {
        wheel.remove((i * 7 % KEYS) as u32);
        stale.push(wheel.stale());
        // The next sweep need not come at once.
        let most = wheel.len + wheel.keys.len() / 4 + STALE + SWEEP_BATCH;
        assert!(wheel.stale() <= most, "{} of {}", wheel.stale(), wheel.len);
    }
    // The first sweep comes when there are more stale entries than live ones and some more.
    let first = 1 + stale.windows(2).take_while(|it| it[0] < it[1]).count();
    assert!((650..670).contains(&first), "after {first}");
    wheel.check();
}

#[test]
fn a_sweep_looks_at_each_slot_once_in_a_round() {
    let mut wheel = with_a_bucket(20);
    for i in 0..200 {
        wheel.insert(FAR * (2 + i % 3) + i);
    }
    let (slots, nodes) = (wheel.levels.count, wheel.levels.room().1);
    let mut looks = 0;
    let mut rounds = 0;
    for sweep in 1.. {
        let (looked, round) = wheel.levels.sweep(10, &mut wheel.keys);
        looks += looked;
        rounds = sweep;
        assert!(looked >= 10 || round);
        // Ten, and the rest of the last bucket.
        assert!(looked < 10 + 33, "{looked} looks");
        if round {
            break;
        }
    }
    assert_eq!(looks, slots + nodes);
    assert!(rounds > 5, "{rounds}");
    wheel.check();
    // A node without slots is one look.
    let mut empty = Wheel::new();
    assert_eq!(empty.levels.sweep(3, &mut empty.keys), (3, false));
    let rest = LEVELS - 3;
    assert_eq!(empty.levels.sweep(LEVELS, &mut empty.keys), (rest, true));
}

#[test]
fn the_last_note_is_left_to_the_usual_path() {
    let mut wheel = with_a_bucket(30);
    // A move that does not count leaves no note.
    assert!(wheel.try_note(1, FAR, false));
    for slot in 1..NOTES as u32 {
        assert_eq!(wheel.noted, slot as usize - 1);
        assert!(wheel.try_note(slot, FAR, true));
    }
    assert!(!wheel.try_note(16, FAR, true));
    assert!(!wheel.try_remove(20), "the notes come first");
    wheel.lower(16, FAR);
    assert_eq!(wheel.noted, 0);
    assert!((1..=16).all(|slot| wheel.keys.get(slot) == FAR));
    // An earlier key than the first one is not noted.
    assert!(!wheel.try_note(3, 0, true));
    assert!(wheel.try_note(3, 1, true));
    wheel.make_noted_moves();
    wheel.check();
}

/// Many slots have their keys in no cache, so moves to earlier keys are made together.
#[test]
fn a_store_with_many_slots_leaves_notes() {
    for (keys, noted) in [(UNCACHED as u64 - 1, 0), (UNCACHED as u64, 1)] {
        let mut wheel = Wheel::new();
        (0..keys).for_each(|key| _ = wheel.insert(if key == 0 { 1 } else { FAR + key }));
        wheel.lower(3, FAR);
        assert_eq!((wheel.noted, wheel.key(3)), (noted, FAR));
        // It is not earlier than the first key.
        wheel.lower(4, 1);
        assert_eq!((wheel.noted, wheel.key(4)), (2 * noted, 1));
        wheel.lower(5, 0);
        assert_eq!((wheel.noted, wheel.first()), (0, Some((0, 5))));
        wheel.check();
    }
}

/// Returns a wheel whose run has 30 entries of one key, which is `base`.
fn with_a_run_of_equal_keys() -> Wheel {
    let mut wheel = Wheel::new();
    wheel.insert(1);
    (0..30).for_each(|_| _ = wheel.insert(FAR + 5));
    assert!(wheel.pop_due(1, |_| ()).is_some());
    assert_eq!(
        (wheel.run.len(), wheel.head, wheel.levels.base),
        (30, 0, FAR + 5)
    );
    wheel
}

/// Of a bucket of equal keys, blocks are taken until there are as many as are sorted.
#[test]
fn equal_keys_come_by_the_block() {
    for (keys, run) in [(15, 15), (16, 16), (17, 17), (32, 16), (33, 17), (48, 16)] {
        let mut wheel = Wheel::new();
        wheel.insert(1);
        (0..keys).for_each(|_| _ = wheel.insert(FAR + 5));
        assert!(wheel.pop_due(1, |_| ()).is_some());
        assert_eq!(wheel.run.len(), run, "of {keys}");
        assert_eq!(wheel.levels.count, keys - run);
        wheel.check();
    }
}

#[test]
fn the_first_entry_is_removed_quickly_if_the_next_one_is_in_the_run() {
    let mut wheel = with_a_run_of_equal_keys();
    for removed in 1..30 {
        let (first, budget) = (wheel.first.slot, wheel.stale_budget);
        assert!(wheel.try_remove(first), "with {removed} others");
        assert_eq!((wheel.head, wheel.len), (removed, 30 - removed));
        assert_eq!(wheel.stale_budget, budget - 1);
        wheel.check();
    }
    // The next entry is not known yet.
    assert!(!wheel.try_remove(wheel.first.slot));
    // The first entry may be in the tree.
    let mut wheel = with_a_run_of_equal_keys();
    let first = wheel.insert(FAR);
    assert!(!wheel.try_remove(first));
    // The next entry may be stale.
    let mut wheel = with_a_run_of_equal_keys();
    wheel.remove(wheel.run[1].slot);
    assert!(!wheel.try_remove(wheel.first.slot));
    wheel.check();
}

/// `soon` is called once with each entry of a run, some entries before it comes out.
#[test]
fn each_entry_of_a_run_is_prefetched() {
    let mut wheel = Wheel::new();
    wheel.insert(1);
    let mut slots: Vec<_> = (0..30).map(|_| wheel.insert(FAR + 5)).collect();
    let mut fetched = Vec::new();
    for popped in 0..=30 {
        // The first pop makes the run.
        assert!(wheel.pop_due(u64::MAX, |slot| fetched.push(slot)).is_some());
        assert_eq!(fetched.len(), (17 + popped).min(30), "after {popped}");
    }
    fetched.sort_unstable();
    slots.sort_unstable();
    assert_eq!(fetched, slots);
}

#[test]
fn the_number_of_stale_entries_sets_the_next_check() {
    let mut wheel = with_a_bucket(400);
    for slot in 1..=STALE as u32 {
        wheel.remove(slot);
    }
    // 337 are live, and of 401 slots a quarter may be stale, too.
    assert_eq!(wheel.stale(), STALE);
    assert_eq!(wheel.stale_budget, (337 + 100) / 2 + 1);
}

/// After a round of the buckets, which are empty here, the front is swept. The looks of the sweep
/// pay for the next one.
#[test]
fn the_front_is_swept_after_the_buckets() {
    let mut wheel = with_a_run_of_equal_keys();
    (0..5).for_each(|_| _ = wheel.pop_due(u64::MAX, |_| ()));
    let in_tree: Vec<_> = (0..1_000).map(|_| wheel.insert(FAR + 5)).collect();
    assert_eq!(
        (wheel.tree.len(), wheel.head, wheel.levels.count),
        (1_000, 5, 0)
    );
    let nodes = wheel.levels.room().1;
    let mut removed = 0;
    for slot in in_tree {
        let stale = wheel.stale();
        wheel.remove(slot);
        removed += 1;
        if wheel.stale() < stale {
            break;
        }
    }
    // So many were stale as live ones and a quarter of the slots, and some more.
    assert!(removed < 1_000);
    assert_eq!((wheel.stale(), wheel.run.len()), (0, 25));
    assert_eq!(wheel.tree.len(), 1_000 - removed);
    assert_eq!(wheel.stale_budget, (nodes + 25 + 1_000) / 4 + 1);
    wheel.check();
}
