//! A store beside a plain map that it must agree with. The fuzz target `stores` uses this file,
//! too.

use std::collections::{BTreeMap, BTreeSet};

use tourbillon_shards::store::Store;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Insert(u64),
    /// The numbers choose among the slots that are in use.
    Remove(usize),
    Rekey(usize, u64),
    Lower(usize, u64),
    RemoveFirst,
    /// Removes all entries up to the key, as an owner does when a deadline passes.
    RemoveUpTo(u64),
}

/// A store, and a plain map from slot to key.
pub struct Checked<S> {
    pub store: S,
    pub model: BTreeMap<u32, u64>,
    /// The plain map, ordered by key.
    pub sorted: BTreeSet<(u64, u32)>,
    /// The most entries ever held at once.
    pub most: usize,
}

impl<S: Store> Checked<S> {
    pub fn new(store: S) -> Self {
        Self {
            store,
            model: BTreeMap::new(),
            sorted: BTreeSet::new(),
            most: 0,
        }
    }

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

    pub fn remove(&mut self, slot: u32) {
        let key = self.store.remove(slot);
        assert_eq!(Some(key), self.model.remove(&slot));
        self.sorted.remove(&(key, slot));
    }

    pub fn rekey(&mut self, slot: u32, key: u64) {
        self.store.rekey(slot, key);
        let old = self.model.insert(slot, key).expect("it is held");
        self.sorted.remove(&(old, slot));
        self.sorted.insert((key, slot));
    }

    pub fn lower(&mut self, slot: u32, key: u64) {
        self.store.lower(slot, key);
        let held = self.model.get_mut(&slot).expect("it is held");
        if key < *held {
            self.sorted.remove(&(*held, slot));
            self.sorted.insert((key, slot));
            *held = key;
        }
    }

    /// Checks that exactly the entries due at `now` come out, in order.
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

    pub fn choose(&self, which: usize) -> Option<u32> {
        let nth = which.checked_rem(self.model.len())?;
        self.model.keys().nth(nth).copied()
    }

    /// Returns a slot that is in use, without a linear walk.
    pub fn any(&self, random: u64) -> Option<u32> {
        let from = (random % self.most.max(1) as u64) as u32;
        let mut held = self.model.range(from..).chain(self.model.range(..from));
        held.next().map(|(&slot, _)| slot)
    }

    pub fn first(&self) -> Option<(u64, u32)> {
        let first = self.store.first();
        let least = self.sorted.first().map(|&(key, _)| key);
        assert_eq!(first.map(|(key, _)| key), least);
        if let Some((key, slot)) = first {
            assert_eq!(self.model.get(&slot), Some(&key), "the first is not held");
        }
        first
    }

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

    pub fn check(&self) {
        self.first();
        assert_eq!(self.store.len(), self.model.len());
        assert_eq!(self.store.is_empty(), self.model.is_empty());
        for (&slot, &key) in &self.model {
            assert_eq!(self.store.key(slot), key);
        }
    }
}
