//! The front of a wheel: the run and the tree, which have all keys up to `base`, and the sweep of
//! stale entries.

use super::{MIN_TREE_LIMIT, NO_ENTRY, STALE, Wheel};
use crate::store::{interface::Entry, slots::VACANT, tree::Nowhere};

/// A bucket with at most this many entries is sorted. A larger one is distributed.
const SORTED: usize = if cfg!(test) { 16 } else { 512 };

/// A sweep looks at this many entries at least.
pub(super) const SWEEP_BATCH: usize = 64;

/// A sweep pays for one entry that gets stale before the next sweep, for each of this many entries
/// that it has looked at.
const LOOKS_PER_STALE: usize = 4;

/// Prefetch distance, in entries of the run.
const AHEAD: usize = 16;

impl Wheel {
    /// Finds the new first entry, without prefetches.
    #[inline(never)]
    pub(super) fn find_first(&mut self) {
        self.advance(|_| ());
    }

    /// Finds the new first entry after the old one was removed or moved. Calls `soon` with slots
    /// that come out soon.
    #[inline]
    pub(super) fn advance(&mut self, mut soon: impl FnMut(u32)) {
        loop {
            let mut run = NO_ENTRY;
            // The first live entry of the run, behind the stale ones.
            while let Some(&entry) = self.run.get(self.head) {
                if self.keys.is_live(entry) {
                    run = entry;
                    break;
                }
                self.head += 1;
                if let Some(next) = self.run.get(self.head + AHEAD) {
                    soon(next.slot);
                }
            }
            let mut tree = NO_ENTRY;
            // The first live entry of the tree.
            while let Some(entry) = self.tree.first() {
                if self.keys.is_live(entry) {
                    tree = entry;
                    break;
                }
                self.tree.pop(&mut Nowhere, &mut soon);
            }
            self.first = if tree.key < run.key { tree } else { run };
            // An empty front takes the next bucket, whose entries may all be stale, too.
            if self.first.slot != VACANT || !self.refill_front() {
                return;
            }
            let next = self.run.iter().skip(self.head).take(AHEAD + 1);
            next.for_each(|entry| soon(entry.slot));
        }
    }

    /// Fills the empty front with the next bucket. Returns `false` if there is none.
    #[cold]
    fn refill_front(&mut self) -> bool {
        self.run.clear();
        self.head = 0;
        while self.run.is_empty() && self.tree.len() == 0 {
            if self.levels.is_empty() {
                // New entries go to the tree again, until there are many.
                self.levels.base = u64::MAX;
                self.tree_limit = MIN_TREE_LIMIT;
                let slot = self.max_keys.first().copied();
                self.first.slot = slot.unwrap_or(VACANT);
                return false;
            }
            let equal = self
                .levels
                .take_first(SORTED, &mut self.keys, &mut self.run);
            self.keys.restore(&self.run);
            self.count_moves(self.run.len());
            // `base` moves to the last key of the run, so that the run is in the front.
            if equal || self.run.len() <= SORTED {
                if !equal {
                    self.run.sort_unstable_by_key(|entry| entry.key);
                }
                if let Some(last) = self.run.last() {
                    self.levels.base = last.key;
                }
            } else {
                self.distribute();
            }
        }
        self.set_tree_limit();
        true
    }

    /// Moves the entries of the run to buckets and the tree. No entry of the run was passed.
    fn distribute(&mut self) {
        self.count_moves(self.run.len());
        for entry in self.run.drain(..) {
            if entry.key > self.levels.base {
                self.levels.push(entry, &mut self.keys);
            } else {
                self.tree.push(entry, &mut Nowhere);
            }
        }
    }

    /// Sets the limit of the tree. As many entries as the tree has must come before they move
    /// again, which pays for the move.
    fn set_tree_limit(&mut self) {
        self.tree_limit = MIN_TREE_LIMIT.max(2 * self.tree.len());
    }

    /// Moves `base` back to the first key, so that the entries of a tree that got large go to
    /// buckets.
    #[cold]
    pub(super) fn spread_front(&mut self) {
        if self.first.key < self.levels.base {
            self.sweep_front();
            // The whole front is distributed anew. It has live entries only, each once.
            let mut moved: Vec<Entry> = self.run.drain(..).skip(self.head).collect();
            self.head = 0;
            moved.extend_from_slice(self.tree.entries());
            self.tree.clear();
            self.levels.go_back(self.first.key);
            std::mem::swap(&mut self.run, &mut moved);
            self.distribute();
        }
        self.set_tree_limit();
    }

    /// Counts an entry that got stale, and sweeps if there are too many.
    #[inline]
    pub(super) fn count_stale(&mut self) {
        self.stale_budget -= 1;
        if self.stale_budget == 0 {
            self.sweep_if_stale();
        }
    }

    /// Returns the number of stale entries.
    pub(super) fn stale(&self) -> usize {
        let front = self.run.len() - self.head + self.tree.len();
        (front + self.levels.count + self.max_keys.len()).saturating_sub(self.len)
    }

    /// Sweeps if there are too many stale entries, and sets how many more may get stale before the
    /// next check.
    #[cold]
    fn sweep_if_stale(&mut self) {
        // After a peak there is memory for more entries, so more may be stale, which saves sweeps.
        let most = self.len + self.keys.len() / 4 + STALE;
        let stale = self.stale();
        // A removal may add a stale entry, and it lowers the allowed number.
        self.stale_budget = match most.checked_sub(stale) {
            Some(left) => left / 2 + 1,
            None => self.sweep() / LOOKS_PER_STALE + 1,
        };
    }

    /// Sweeps a few buckets, and after each round of the buckets the front. Returns the number of
    /// entries that it looked at.
    fn sweep(&mut self) -> usize {
        let (mut looks, round) = self.levels.sweep(SWEEP_BATCH, &mut self.keys);
        if round {
            looks += self.run.len() - self.head + self.tree.len();
            self.sweep_front();
        }
        looks
    }

    /// Removes stale and duplicate entries from the front.
    fn sweep_front(&mut self) {
        self.run.drain(..self.head);
        self.head = 0;
        let keys = &mut self.keys;
        self.run.retain(|&entry| keys.collect_entry(entry));
        self.tree.retain(|&entry| keys.collect_entry(entry));
        keys.restore(&self.run);
        keys.restore(self.tree.entries());
    }
}
