//! A store of timers beside a plain map that it must agree with. The tests of the stores
//! (`shards/tests/store`) and their fuzz target (`testing/fuzz/src/stores.rs`) share it.
//!
//! Each method does the same to both, and panics if they differ.

use std::collections::{BTreeMap, BTreeSet};

use tourbillon_shards::store::Store;

/// An operation on both. The first number of those on a slot chooses among the slots in use.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Inserts a key.
    Insert(u64),
    /// Removes an entry.
    Remove(usize),
    /// Gives an entry another key.
    Rekey(usize, u64),
    /// Gives an entry another key, if it is less than its own.
    Lower(usize, u64),
    /// Removes the first entry.
    RemoveFirst,
    /// Removes all entries up to the key, as an owner does when a deadline passes.
    RemoveUpTo(u64),
}

/// A store, and a plain map from slot to key.
#[derive(Debug)]
pub struct Checked<S> {
    /// The store.
    pub store: S,
    /// The plain map.
    pub model: BTreeMap<u32, u64>,
    /// The plain map, ordered by key.
    pub sorted: BTreeSet<(u64, u32)>,
    /// The most entries ever held at once.
    pub most: usize,
}

impl<S: Store> Checked<S> {
    /// Starts with an empty store.
    pub fn new(store: S) -> Self {
        Self {
            store,
            model: BTreeMap::new(),
            sorted: BTreeSet::new(),
            most: 0,
        }
    }

    /// Inserts a key. Its slot must be the least that is free.
    pub fn insert(&mut self, key: u64) {
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

    /// Removes the entry of a slot in use.
    pub fn remove(&mut self, slot: u32) {
        let key = self.store.remove(slot);
        assert_eq!(Some(key), self.model.remove(&slot));
        self.sorted.remove(&(key, slot));
    }

    /// Gives the entry of a slot in use another key.
    pub fn rekey(&mut self, slot: u32, key: u64) {
        self.store.rekey(slot, key);
        let old = self.model.insert(slot, key).expect("it is held");
        self.sorted.remove(&(old, slot));
        self.sorted.insert((key, slot));
    }

    /// Gives the entry of a slot in use another key, if it is less than its own.
    pub fn lower(&mut self, slot: u32, key: u64) {
        self.store.lower(slot, key);
        let held = self.model.get_mut(&slot).expect("it is held");
        if key < *held {
            self.sorted.remove(&(*held, slot));
            self.sorted.insert((key, slot));
            *held = key;
        }
    }

    /// Removes the entries that are due at `now`, and returns how many. Exactly those must come out,
    /// in order.
    pub fn pop_due(&mut self, now: u64) -> usize {
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

    /// Returns a slot in use, or `None` if there is none.
    pub fn choose(&self, which: usize) -> Option<u32> {
        let nth = which.checked_rem(self.model.len())?;
        self.model.keys().nth(nth).copied()
    }

    /// Returns a slot in use, without a linear walk.
    pub fn any(&self, random: u64) -> Option<u32> {
        let from = (random % self.most.max(1) as u64) as u32;
        let mut held = self.model.range(from..).chain(self.model.range(..from));
        held.next().map(|(&slot, _)| slot)
    }

    /// Returns the first entry.
    pub fn first(&self) -> Option<(u64, u32)> {
        let first = self.store.first();
        let least = self.sorted.first().map(|&(key, _)| key);
        assert_eq!(first.map(|(key, _)| key), least);
        if let Some((key, slot)) = first {
            assert_eq!(self.model.get(&slot), Some(&key), "the first is not held");
        }
        first
    }

    /// Does an operation.
    pub fn apply(&mut self, op: Op) {
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
            Op::Lower(which, key) => {
                if let Some(slot) = self.choose(which) {
                    self.lower(slot, key);
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

    /// Checks that both have the same entries.
    pub fn check(&self) {
        self.first();
        assert_eq!(self.store.len(), self.model.len());
        assert_eq!(self.store.is_empty(), self.model.is_empty());
        for (&slot, &key) in &self.model {
            assert_eq!(self.store.key(slot), key);
        }
    }
}
