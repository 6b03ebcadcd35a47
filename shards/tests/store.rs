//! Every store against a plain list: random programs of inserts, removals and moves, with keys from
//! the same nanosecond to years apart.
#![cfg(not(loom))]

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use proptest::prelude::*;
use tourbillon_shards::store::{Heap, Lanes, Store, Wheel};

const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 24 * 3_600 * SECOND;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    /// The numbers choose among the slots that are held.
    Remove(usize),
    Rekey(usize, u64),
    RemoveFirst,
    /// What an owner does when a deadline passes: all up to the key go.
    RemoveUpTo(u64),
}

/// Few distinct keys, so that many are equal; keys of a busy moment; of years; and the extremes.
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
        2 => Just(Op::RemoveFirst),
        1 => key().prop_map(Op::RemoveUpTo),
    ]
}

/// A store next to the plain thing that it has to agree with: slot to key.
struct Checked<S> {
    store: S,
    model: BTreeMap<u32, u64>,
    /// The same in the order of the keys.
    sorted: BTreeSet<(u64, u32)>,
    /// The most entries ever held at once.
    most: usize,
}

impl<S: Store> Checked<S> {
    fn insert(&mut self, key: u64) {
        let slot = self.store.insert(key);
        assert_eq!(self.model.insert(slot, key), None, "slot {slot} was held");
        self.sorted.insert((key, slot));
        self.most = self.most.max(self.model.len());
        assert!(
            (slot as usize) < self.most,
            "slot {slot} where {} would do",
            self.most
        );
    }

    fn remove(&mut self, slot: u32) {
        let key = self.store.remove(slot);
        assert_eq!(Some(key), self.model.remove(&slot));
        self.sorted.remove(&(key, slot));
    }

    fn rekey(&mut self, slot: u32, key: u64) {
        self.store.rekey(slot, key);
        let old = self.model.insert(slot, key).expect("it is held");
        self.sorted.remove(&(old, slot));
        self.sorted.insert((key, slot));
    }

    /// All that is due at `now` comes out, in order, and nothing else.
    fn pop_due(&mut self, now: u64) -> usize {
        let mut popped = 0;
        loop {
            let (first, most) = (self.first(), self.most);
            let due = first.filter(|&(key, _)| key <= now);
            let out = self.store.pop_due(now, |soon| {
                assert!((soon as usize) < most, "slot {soon} was never held");
            });
            assert_eq!(out, due);
            let Some((key, slot)) = out else {
                return popped;
            };
            assert_eq!(self.model.remove(&slot), Some(key));
            self.sorted.remove(&(key, slot));
            popped += 1;
        }
    }

    fn choose(&self, which: usize) -> Option<u32> {
        let nth = which.checked_rem(self.model.len())?;
        self.model.keys().nth(nth).copied()
    }

    /// Some slot that is held, without a walk to it.
    fn any(&self, random: u64) -> Option<u32> {
        let from = (random % self.most.max(1) as u64) as u32;
        let mut held = self.model.range(from..).chain(self.model.range(..from));
        held.next().map(|(&slot, _)| slot)
    }

    fn first(&self) -> Option<(u64, u32)> {
        let first = self.store.first();
        let least = self.sorted.first().map(|&(key, _)| key);
        assert_eq!(first.map(|(key, _)| key), least);
        if let Some((key, slot)) = first {
            assert_eq!(self.model.get(&slot), Some(&key), "the first is not held");
        }
        first
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(key) => self.insert(key),
            Op::Remove(which) => {
                if let Some(slot) = self.choose(which) {
                    self.remove(slot);
                }
            }
            Op::Rekey(which, key) => {
                if let Some(slot) = self.choose(which) {
                    self.rekey(slot, key);
                }
            }
            Op::RemoveFirst => {
                if let Some((_, slot)) = self.first() {
                    self.remove(slot);
                }
            }
            Op::RemoveUpTo(now) => {
                self.pop_due(now);
            }
        }
    }

    fn check(&self) {
        self.first();
        assert_eq!(self.store.len(), self.model.len());
        assert_eq!(self.store.is_empty(), self.model.is_empty());
        for (&slot, &key) in &self.model {
            assert_eq!(self.store.key(slot), key);
        }
    }

    /// Nothing may be done to a slot that is not held, and the attempt changes nothing.
    fn check_vacant(&mut self) {
        let vacant = (0..=self.most as u32).filter(|slot| !self.model.contains_key(slot));
        for slot in vacant.chain([u32::MAX]).collect::<Vec<_>>() {
            let store = &mut self.store;
            assert!(panics(|| store.remove(slot)), "removed {slot}");
            assert!(panics(|| store.rekey(slot, 1)), "moved {slot}");
            assert!(panics(|| store.key(slot)), "read {slot}");
        }
        self.check();
    }
}

/// Whether `f` panics; the message goes to the captured output of the test.
fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

fn checked<S: Store>(store: S) -> Checked<S> {
    Checked {
        store,
        model: BTreeMap::new(),
        sorted: BTreeSet::new(),
        most: 0,
    }
}

fn agrees_with_a_list<S: Store>(store: S, program: Vec<Op>) {
    let mut checked = checked(store);
    for op in program {
        checked.apply(op);
        checked.check();
    }
    // All that is left comes out in order.
    while let Some((_, slot)) = checked.first() {
        checked.remove(slot);
    }
    assert!(checked.store.is_empty());
    assert_eq!(checked.store.first(), None);
}

fn refuses_slots_that_are_not_held<S: Store>(store: S, program: Vec<Op>) {
    let mut checked = checked(store);
    checked.check_vacant();
    for op in program {
        checked.apply(op);
    }
    checked.check_vacant();
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

/// How far ahead the timers of a life are.
const DELAYS: [fn(u64, u64) -> u64; 5] = [
    // A server's durations.
    |_, random| [1, 5, 30, 60][random as usize % 4] * SECOND,
    // Any, up to a minute.
    |_, random| random % (60 * SECOND),
    // Bursts: whole seconds.
    |now, random| (1 + random % 10) * SECOND - now % SECOND,
    // From nanoseconds to years.
    |_, random| 1 << (random % 62),
    // First the far ones, then the near.
    |now, random| (100 * SECOND).saturating_sub(now % (100 * SECOND)) + random % 1_000,
];

/// A store whose clock goes on from `start`, with thousands of timers of all the kinds above.
fn lives<S: Store>(store: S, start: u64) {
    let mut checked = checked(store);
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
                9..12 => {
                    if let Some(slot) = checked.any(random()) {
                        checked.rekey(slot, due);
                    }
                }
                // What is overdue already.
                12 => checked.insert(now.saturating_sub(random() % SECOND)),
                13 => checked.apply(Op::RemoveFirst),
                14 => {
                    now = now.saturating_add(random() % (SECOND / 50));
                    popped += checked.pop_due(now);
                }
                _ => {
                    // To the next deadline, as a worker that has slept.
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

/// More at one instant, and more that come in an order that suits nobody, than any part is made for.
fn takes_crowds<S: Store + Default>() {
    const CROWD: u64 = 5_000;
    let mut random = random(7);
    let orders: [&dyn Fn(u64) -> u64; 6] = [
        &|_| 3 * SECOND,
        &|i| SECOND + i,
        &|i| 60 * SECOND - i,
        // One far ahead, and then the others.
        &|i| {
            if i == 0 {
                YEAR
            } else {
                i * 7_919 % 59 * SECOND + i
            }
        },
        // Overdue, after one that is not.
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
        let mut checked = checked(S::default());
        for i in 0..CROWD {
            checked.insert(order(i));
            checked.first();
        }
        for _ in 0..CROWD / 2 {
            let slot = checked.any(random()).expect("some are held");
            match random() % 2 {
                0 => checked.remove(slot),
                _ => checked.rekey(slot, order(random() % CROWD)),
            }
            checked.first();
        }
        checked.check();
        checked.pop_due(u64::MAX);
        assert!(checked.store.is_empty() && checked.model.is_empty());
    }
}

/// tokio's wheel, and tokio-util's queue, end at 2^36 ms: keys on both sides of that, and of every power of
/// two, in one store.
fn has_no_end<S: Store + Default>() {
    let mut checked = checked(S::default());
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
        // Now and then another for the same moment.
        rounds += 1;
        if rounds % 7 == 0 {
            checked.insert(now);
        }
    }
    assert_eq!(now, (1 << 63) + 1);
}

/// Deeper than the programs above reach: thousands of entries, of which all but a few go in an order
/// that has nothing to do with their keys.
fn stays_sorted_when_deep<S: Store>(store: S) {
    let mut checked = checked(store);
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

/// A stack of as many slots as were ever held at once is all that a store may use, however often
/// they change hands.
fn reuses_slots<S: Store>(store: S) {
    let mut checked = checked(store);
    for round in 0..10_000 {
        checked.insert(round);
        if round >= 3 {
            checked.apply(Op::RemoveFirst);
        }
    }
    assert_eq!(checked.most, 4);
    assert!(checked.model.keys().all(|&slot| slot < 4));
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
            fn stays_sorted_when_deep() {
                super::stays_sorted_when_deep($store);
            }

            #[test]
            fn lives_long() {
                // The 2^36th millisecond, after which wheels have hung, and the end of time.
                let wraps = (1_u64 << 36) * 1_000_000 - SECOND;
                let never = tourbillon_shards::NEVER - 2 * SECOND;
                for start in [0, 400 * 24 * 3_600 * SECOND, wraps, never, u64::MAX - 90 * SECOND] {
                    super::lives($store, start);
                }
            }

            #[test]
            fn takes_crowds() {
                super::takes_crowds::<$type>();
            }

            #[test]
            fn has_no_end() {
                super::has_no_end::<$type>();
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
    lanes: Lanes, Lanes::new();
}
