//! Each store against a plain list: random programs of inserts, removals and moves, with keys from
//! within one nanosecond to years apart.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::units::{SECOND, YEAR};
use proptest::prelude::*;
use tourbillon_model::checked::{Checked, Op};
use tourbillon_shards::store::{Heap, Store, Wheel};

/// Keys: few distinct ones, so that many are equal; those of a busy moment; of years; and the
/// extremes.
fn key() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..8_u64,
        4 => 0..5_000_000_u64,
        2 => 0..100 * YEAR,
        1 => (0..64_u32).prop_map(|bit| 1 << bit),
        1 => prop::sample::select(vec![0, u64::MAX, u64::MAX - 1, tourbillon_shards::NEVER]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => key().prop_map(Op::Insert),
        2 => any::<usize>().prop_map(Op::Remove),
        3 => (any::<usize>(), key()).prop_map(|(which, key)| Op::Rekey(which, key)),
        3 => (any::<usize>(), key()).prop_map(|(which, key)| Op::Lower(which, key)),
        2 => Just(Op::RemoveFirst),
        1 => key().prop_map(Op::RemoveUpTo),
    ]
}

/// Checks that an operation on a vacant slot panics and changes nothing.
fn check_vacant<S: Store>(checked: &mut Checked<S>) {
    let vacant = (0..=checked.most as u32).filter(|slot| !checked.model.contains_key(slot));
    for slot in vacant.chain([u32::MAX]) {
        let store = &mut checked.store;
        assert!(panics(|| store.remove(slot)), "removed {slot}");
        assert!(panics(|| store.rekey(slot, 1)), "moved {slot}");
        assert!(panics(|| store.key(slot)), "read {slot}");
    }
    checked.check();
}

/// Returns whether `f` panics. The message goes to the captured output of the test.
fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

fn agrees_with_a_list<S: Store>(store: S, program: Vec<Op>) {
    let mut checked = Checked::new(store);
    for op in program {
        checked.apply(op);
        checked.check();
    }
    // The rest comes out in order.
    while let Some((_, slot)) = checked.first() {
        checked.remove(slot);
    }
    assert!(checked.store.is_empty());
    assert_eq!(checked.store.first(), None);
}

fn refuses_slots_that_are_not_held<S: Store>(store: S, program: Vec<Op>) {
    let mut checked = Checked::new(store);
    check_vacant(&mut checked);
    for op in program {
        checked.apply(op);
    }
    check_vacant(&mut checked);
}

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

/// How far ahead the timers of a test are.
const DELAYS: [fn(u64, u64) -> u64; 5] = [
    // The timeouts of a server.
    |_, random| [1, 5, 30, 60][random as usize % 4] * SECOND,
    // Any, up to a minute.
    |_, random| random % (60 * SECOND),
    // Bursts at whole seconds.
    |now, random| (1 + random % 10) * SECOND - now % SECOND,
    // From nanoseconds to years.
    |_, random| 1 << (random % 62),
    // First the far ones, then the near.
    |now, random| (100 * SECOND).saturating_sub(now % (100 * SECOND)) + random % 1_000,
];

/// Runs a store from `start` on, with thousands of timers of all the kinds above.
fn runs_long<S: Store>(store: S, start: u64) {
    let mut checked = Checked::new(store);
    let mut random = random(start | 1);
    let mut now = start;
    let mut popped = 0;
    for delay in DELAYS {
        for step in 0..6_000_u64 {
            let due = now.saturating_add(delay(now, random()));
            let held = checked.model.len();
            match random() % 16 {
                _ if held < 2_000 && step < 3_000 => checked.insert(due),
                0..6 => checked.insert(due),
                6..9 => {
                    if let Some(slot) = checked.any(random()) {
                        checked.remove(slot);
                    }
                }
                9..11 => {
                    if let Some(slot) = checked.any(random()) {
                        checked.rekey(slot, due);
                    }
                }
                11 => {
                    // Often enough that several are moved to one time.
                    for _ in 0..random() % 8 {
                        if let Some(slot) = checked.any(random()) {
                            checked.lower(slot, now.max(checked.store.key(slot) / 2));
                        }
                    }
                }
                // Keys that are overdue already.
                12 => checked.insert(now.saturating_sub(random() % SECOND)),
                13 => checked.apply(Op::RemoveFirst),
                14 => {
                    now = now.saturating_add(random() % (SECOND / 50));
                    popped += checked.pop_due(now);
                }
                _ => {
                    // To the next deadline, like a worker after its sleep.
                    now = now.max(checked.first().map_or(0, |(key, _)| key));
                    popped += checked.pop_due(now);
                }
            }
            checked.first();
        }
        checked.check();
    }
    assert!(popped > 1_000, "{popped}");
    checked.pop_due(u64::MAX);
    assert!(checked.store.is_empty() && checked.model.is_empty());
}

/// Inserts more keys at one instant than any part is made for, and keys in the worst order.
fn handles_crowds<S: Store + Default>() {
    const CROWD: u64 = 20_000;
    let mut random = random(7);
    let orders: [&dyn Fn(u64) -> u64; 7] = [
        &|_| 3 * SECOND,
        &|i| SECOND + i,
        &|i| 60 * SECOND - i,
        // One far ahead, then the others.
        &|i| {
            if i == 0 {
                YEAR
            } else {
                i * 7_919 % 59 * SECOND + i
            }
        },
        // One near, and the others within one second of a far minute.
        &|i| {
            if i == 0 {
                SECOND
            } else {
                600 * SECOND + i * 49_999_991 % SECOND
            }
        },
        // Overdue keys, after one that is not.
        &|i| if i == 0 { YEAR } else { 0 },
        &|i| {
            if i % 2 == 0 {
                u64::MAX
            } else {
                tourbillon_shards::NEVER
            }
        },
    ];
    for order in orders {
        let mut checked = Checked::new(S::default());
        for i in 0..CROWD {
            checked.insert(order(i));
            checked.first();
        }
        for _ in 0..CROWD / 2 {
            let slot = checked.any(random()).expect("some are held");
            match random() % 8 {
                0..3 => checked.remove(slot),
                3..6 => checked.lower(slot, order(random() % CROWD).saturating_sub(1)),
                _ => checked.rekey(slot, order(random() % CROWD)),
            }
            checked.first();
        }
        checked.check();
        checked.pop_due(u64::MAX);
        assert!(checked.store.is_empty() && checked.model.is_empty());
    }
}

/// tokio's wheel and tokio-util's queue end at 2^36 ms. This has keys on both sides of that, and of
/// each power of two, in one store.
fn has_no_end<S: Store + Default>() {
    let mut checked = Checked::new(S::default());
    for bit in 0..64 {
        for near in [-1, 0, 1] {
            checked.insert((1_u64 << bit).wrapping_add_signed(near));
            checked.insert((1_000_000_u64 << bit.min(43)).wrapping_add_signed(near));
        }
    }
    checked.check();
    let (mut now, mut rounds) = (0, 0_u32);
    while let Some((key, slot)) = checked.first() {
        assert_eq!(checked.pop_due(key - key.min(1)), usize::from(key == 0));
        if checked.model.contains_key(&slot) {
            assert!(checked.pop_due(key) > 0);
        }
        now = key.max(now);
        // Now and then a second key for one moment.
        rounds += 1;
        if rounds % 7 == 0 {
            checked.insert(now);
        }
    }
    assert_eq!(now, (1 << 63) + 1);
}

/// This is deeper than the programs above reach: thousands of entries, and nearly all are removed
/// in an order that is unrelated to their keys.
fn stays_sorted_with_many_entries<S: Store>(store: S) {
    let mut checked = Checked::new(store);
    let mut random = random(1);
    for _ in 0..4_000 {
        let key = random() % 1_000;
        checked.insert(key);
    }
    for round in 0..8_000 {
        let slot = checked.choose(random() as usize).expect("some are held");
        match round % 4 {
            0 => checked.remove(slot),
            1 => checked.apply(Op::RemoveFirst),
            _ => {
                let key = random() % 1_000;
                checked.rekey(slot, key);
            }
        }
        if checked.model.len() < 10 {
            break;
        }
        if round % 64 == 0 {
            checked.check();
        }
    }
    let mut last = 0;
    while let Some((key, slot)) = checked.store.first() {
        assert!(key >= last, "{key} after {last}");
        last = key;
        checked.remove(slot);
    }
    assert!(checked.model.is_empty());
}

/// A store may use as many slots as were ever held at once, however often they are reused.
fn reuses_slots<S: Store>(store: S) {
    let mut checked = Checked::new(store);
    for round in 0..10_000 {
        checked.insert(round);
        if round >= 3 {
            checked.apply(Op::RemoveFirst);
        }
    }
    assert_eq!(checked.most, 4);
    assert!(checked.model.keys().all(|&slot| slot < 4));
}

/// A store names the slots that come out soon, so that the caller can prefetch their nodes. Without
/// that each timer is a cache miss, and nothing else would show it.
fn names_most_slots_before_they_come_out<S: Store>(mut store: S) {
    const ENTRIES: usize = 20_000;
    let mut random = random(11);
    // In buckets of some hundred entries.
    for _ in 0..ENTRIES {
        store.insert(random() % (10 * SECOND));
    }
    let mut named = vec![None; ENTRIES];
    let (mut in_time, mut distances) = (0, 0);
    for popped in 0..ENTRIES {
        let (_, slot) = store
            .pop_due(u64::MAX, |slot| named[slot as usize] = Some(popped))
            .expect("it is not empty");
        if let Some(at) = named[slot as usize].filter(|at| *at < popped) {
            in_time += 1;
            distances += popped - at;
        }
    }
    assert!(in_time > ENTRIES * 95 / 100, "{in_time} of {ENTRIES}");
    // Not so early that the cache has lost them.
    let distance = distances / in_time;
    assert!((4..200).contains(&distance), "{distance} pops before");
}

macro_rules! stores {
    ($($name:ident: $type:ty, $store:expr;)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

                #[test]
                fn agrees_with_a_list(program in prop::collection::vec(op(), 0..200)) {
                    super::agrees_with_a_list($store, program);
                }
            }

            proptest! {
                #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

                #[test]
                fn refuses_slots_that_are_not_held(program in prop::collection::vec(op(), 0..40)) {
                    super::refuses_slots_that_are_not_held($store, program);
                }
            }

            #[test]
            fn stays_sorted_with_many_entries() {
                super::stays_sorted_with_many_entries($store);
            }

            #[test]
            fn handles_years_of_uptime() {
                // The 2^36th millisecond, after which wheels of other projects have hung, and the
                // end of time.
                let wraps = (1_u64 << 36) * 1_000_000 - SECOND;
                let never = tourbillon_shards::NEVER - 2 * SECOND;
                for start in [0, 400 * 24 * 3_600 * SECOND, wraps, never, u64::MAX - 90 * SECOND] {
                    super::runs_long($store, start);
                }
            }

            #[test]
            fn handles_crowds() {
                super::handles_crowds::<$type>();
            }

            #[test]
            fn has_no_end() {
                super::has_no_end::<$type>();
            }

            #[test]
            fn names_most_slots_before_they_come_out() {
                super::names_most_slots_before_they_come_out($store);
            }

            #[test]
            fn reuses_slots() {
                super::reuses_slots($store);
            }
        }
    )*};
}

stores! {
    heap: Heap, Heap::new();
    wheel: Wheel, Wheel::new();
}
