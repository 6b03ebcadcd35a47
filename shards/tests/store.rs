//! Every store against a plain list: random programs of inserts, removals and moves, with keys from
//! the same nanosecond to years apart.
#![cfg(not(loom))]

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use proptest::prelude::*;
use tourbillon_shards::store::{AnyStore, Heap, Lanes, Store, StoreKind, Wheel};

const YEAR: u64 = 365 * 24 * 3_600 * 1_000_000_000;

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
    /// The most entries ever held at once.
    most: usize,
}

impl<S: Store> Checked<S> {
    fn insert(&mut self, key: u64) {
        let slot = self.store.insert(key);
        assert_eq!(self.model.insert(slot, key), None, "slot {slot} was held");
        self.most = self.most.max(self.model.len());
        assert!(
            (slot as usize) < self.most,
            "slot {slot} where {} would do",
            self.most
        );
    }

    fn remove(&mut self, slot: u32) {
        assert_eq!(Some(self.store.remove(slot)), self.model.remove(&slot));
    }

    fn choose(&self, which: usize) -> Option<u32> {
        let nth = which.checked_rem(self.model.len())?;
        self.model.keys().nth(nth).copied()
    }

    fn first(&self) -> Option<(u64, u32)> {
        let first = self.store.first();
        assert_eq!(
            first.map(|(key, _)| key),
            self.model.values().min().copied()
        );
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
                    self.store.rekey(slot, key);
                    self.model.insert(slot, key);
                }
            }
            Op::RemoveFirst => {
                if let Some((_, slot)) = self.first() {
                    self.remove(slot);
                }
            }
            Op::RemoveUpTo(now) => {
                while let Some((_, slot)) = self.first().filter(|&(key, _)| key <= now) {
                    self.remove(slot);
                }
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

/// Deeper than the programs above reach: thousands of entries, of which all but a few go in an order
/// that has nothing to do with their keys.
fn stays_sorted_when_deep<S: Store>(store: S) {
    let mut checked = checked(store);
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
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
                checked.store.rekey(slot, key);
                checked.model.insert(slot, key);
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
    ($($name:ident: $store:expr;)*) => {$(
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
            fn reuses_slots() {
                super::reuses_slots($store);
            }
        }
    )*};
}

stores! {
    heap: Heap::new();
    wheel: Wheel::new();
    lanes: Lanes::new();
    any: AnyStore::new(StoreKind::default());
}
