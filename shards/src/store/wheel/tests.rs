//! Tests of the parts of a wheel that the tests of all stores (`tests/store/stores.rs`) cannot see.

use super::{front::SWEEP_BATCH, levels::LEVELS, *};
use crate::store::keys::UNCACHED;

impl Wheel {
    /// Asserts that each entry is where the head of `wheel/mod.rs` says, and that the counts agree.
    fn check(&self) {
        let in_buckets = self.levels.check();
        let base = self.levels.base;
        let mut held = self.max_keys.len();
        let mut least = u64::MAX;
        for entry in self.keys.iter() {
            let Entry { key, slot } = entry;
            held += 1;
            least = least.min(key);
            if key > base {
                let bucket = self.levels.bucket(key);
                assert!(bucket.contains(&slot), "{key} is not in its bucket");
            } else {
                let mut front = self.tree.entries().iter().chain(&self.run[self.head..]);
                let there = front.any(|it| (it.key, it.slot) == (key, slot));
                // Some entries of a bucket of equal keys may still be in their bucket.
                assert!(there || key == base, "{key} is not in front of {base}");
            }
        }
        assert_eq!(held, self.len);
        let first = self.first;
        assert_eq!(first.slot != VACANT, held > 0);
        assert_eq!({ first.key }, least);
        let in_front = self.tree.entries().len() + self.run[self.head..].len();
        assert_eq!(
            self.stale(),
            in_buckets + in_front + self.max_keys.len() - held
        );
        let most = (self.keys.len() + STALE) * 2;
        assert!(self.stale() <= most, "{} of {held}", self.stale());
    }
}

#[test]
fn each_entry_is_in_the_place_of_its_key() {
    let mut wheel = Wheel::new();
    let mut slots = Vec::new();
    let mut random = 1_u64;
    let mut turned_back = 0;
    let mut quickly = [0; 2];
    for step in 0..40_000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = random >> 33;
        // Some keys are far apart, so that `base` has to go back now and then.
        let key = step * 1_000 + (draw % 60_000_000) * if draw % 1_000 == 0 { 60_000 } else { 1 };
        let base = wheel.levels.base;
        match draw % 5 {
            _ if slots.len() < 700 && step % 10_000 < 6_000 => {
                let slot = wheel.try_insert(key);
                quickly[0] += usize::from(slot.is_some());
                slots.push(slot.unwrap_or_else(|| wheel.insert(key)));
            }
            0 | 1 if !slots.is_empty() => {
                let first = slots.iter().position(|&slot| slot == wheel.first.slot);
                let at = first.filter(|_| draw % 2 == 0);
                let slot = slots.swap_remove(at.unwrap_or(draw as usize % slots.len()));
                let was_removed = wheel.try_remove(slot);
                quickly[1] += usize::from(was_removed);
                if !was_removed {
                    wheel.remove(slot);
                }
            }
            2 if !slots.is_empty() => wheel.rekey(slots[draw as usize % slots.len()], key),
            _ if step % 10_000 > 7_000 => {
                let popped = wheel.pop_due(u64::MAX, |_| ());
                slots.retain(|&slot| popped.is_none_or(|it| it.1 != slot));
            }
            _ => {}
        }
        turned_back += usize::from(wheel.levels.base < base);
        if step % 8 == 0 {
            wheel.check();
        }
    }
    assert!(turned_back > 0, "base never went back");
    assert!(quickly.iter().all(|&count| count > 1_000), "{quickly:?}");
}

/// The memory of the buckets is bounded by the most entries that were held at once.
#[test]
fn blocks_are_used_again() {
    let mut wheel = Wheel::new();
    for round in 0..50_u64 {
        for i in 0..5_000 {
            wheel.insert(round * 1_000_000 + i * 97 % 1_000_000);
        }
        while wheel.pop_due(u64::MAX, |_| ()).is_some() {}
    }
    let (slots, nodes) = wheel.levels.room();
    // Each bucket in use has a block. With the limits of tests, buckets have few entries.
    assert!(slots <= 16 * 5_000 + LEVELS * 64 * 16, "{slots} slots");
    assert!(nodes <= 2 * LEVELS + 5_000 / 16, "{nodes} nodes");
}

/// A bucket of equal keys at its start goes to the tree, not to the run. `soon` must not be called
/// with stale entries of the old run.
#[test]
fn only_held_slots_are_prefetched() {
    let mut wheel = Wheel::new();
    wheel.insert(1);
    let removed = wheel.insert(2);
    wheel.insert(2);
    for _ in 0..600 {
        wheel.insert(64);
    }
    assert!(wheel.pop_due(1, |_| ()).is_some());
    wheel.remove(removed);
    let popped = wheel.pop_due(2, |slot| assert!(slot < 603, "slot {slot} was never held"));
    assert_eq!(popped.map(|it| it.0), Some(2));
    wheel.check();
}

/// Many timers at one moment do not move each time that an earlier timer fires.
#[test]
fn many_entries_at_one_moment_stay_in_place() {
    const TIMERS: u64 = 10_000;
    const EARLIER: u64 = 990;
    // A moment at which a bucket begins, and one at which none does.
    for instant in [1_000_000_000, 1_000_000_001] {
        let mut wheel = Wheel::new();
        wheel.insert(1);
        for _ in 0..TIMERS {
            wheel.insert(instant);
        }
        assert!(wheel.pop_due(1, |_| ()).is_some());
        for ms in 1..=EARLIER {
            let slot = wheel.insert(ms * 1_000_000);
            assert_eq!(
                wheel.pop_due(ms * 1_000_000, |_| ()),
                Some((ms * 1_000_000, slot))
            );
        }
        wheel.check();
        let most = 2 * LEVELS as u64 * (TIMERS + EARLIER);
        let moves = 1..=most;
        assert!(
            moves.contains(&(wheel.moves as u64)),
            "{} moves",
            wheel.moves
        );
    }
}

/// Compares a wheel with a sorted set. With the limits of tests, buckets are split, become roots,
/// and become children again all the time.
#[test]
fn nodes_become_roots_and_children_again() {
    let (mut nodes, mut back, mut put_off, mut quickly) = (0, 0, 0, 0);
    for seed in 1..=24_u64 {
        let mut wheel = Wheel::new();
        let mut model = BTreeSet::new();
        let mut slots: Vec<u32> = Vec::new();
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % below
        };
        let mut now = seed * 1_000_000_007;
        for step in 0..5_000 {
            // From some ns to an hour ahead, and some whole seconds.
            let width = [30, 3_000, 400_000, 90_000_000, 4_000_000_000_000][draw(5) as usize];
            let key = match draw(8) {
                0 => (now / 1_000_000_000 + 1 + draw(2)) * 1_000_000_000,
                1 => now + 500_000 + draw(8),
                2 if seed % 8 == 0 => u64::MAX - draw(3),
                _ => now + draw(width),
            };
            let grows = step % 2_500 < 1_200;
            let which = draw(slots.len().max(1) as u64) as usize;
            let base = wheel.levels.base;
            match draw(8) {
                0..4 if grows || slots.len() < 4 => {
                    let slot = wheel.insert(key);
                    assert!(model.insert((key, slot)));
                    slots.push(slot);
                }
                0 if !slots.is_empty() => {
                    let slot = slots.swap_remove(which);
                    assert!(model.remove(&(wheel.key(slot), slot)));
                    wheel.remove(slot);
                }
                1 if slots.len() > 16 && step % 4 == 0 => {
                    // Several at once, because these moves are noted and made later.
                    for &slot in &slots[which / 2..][..4] {
                        let old = wheel.key(slot);
                        if step % 8 == 0 && wheel.try_note(slot, key, key < old) {
                            quickly += 1;
                        } else {
                            wheel.lower(slot, key);
                        }
                        assert!(model.remove(&(old, slot)));
                        model.insert((key.min(old), slot));
                        assert_eq!(wheel.key(slot), key.min(old));
                        put_off += wheel.noted;
                    }
                }
                1..5 if !slots.is_empty() => {
                    let slot = slots[which];
                    assert!(model.remove(&(wheel.key(slot), slot)));
                    wheel.rekey(slot, key);
                    model.insert((key, slot));
                }
                _ => {
                    now += draw(if grows { 50_000 } else { 3_000_000 });
                    while let Some((key, slot)) = wheel.pop_due(now, |_| ()) {
                        assert_eq!(Some(key), model.first().map(|it| it.0));
                        assert!(model.remove(&(key, slot)));
                        slots.retain(|&it| it != slot);
                    }
                }
            }
            back += usize::from(wheel.levels.base < base);
            assert_eq!(wheel.first().map(|it| it.0), model.first().map(|it| it.0));
            if step % 16 == 0 {
                wheel.make_noted_moves();
                wheel.check();
                nodes = nodes.max(wheel.levels.room().1);
            }
        }
        while let Some((key, slot)) = wheel.pop_due(u64::MAX, |_| ()) {
            assert_eq!(Some(key), model.first().map(|it| it.0));
            assert!(model.remove(&(key, slot)));
        }
        assert!(model.is_empty());
        wheel.check();
    }
    assert!(nodes > 2 * LEVELS, "{nodes} nodes: nothing was split");
    assert!(put_off > 1_000, "{put_off} moves were put off");
    assert!(quickly > 500, "{quickly} notes were left by the fast path");
    assert!(back > 100, "base went back {back} times");
}

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

/// After a round of the buckets, which are empty here, the front is swept. What the sweep has looked
/// at pays for the next one.
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
