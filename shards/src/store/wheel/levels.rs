//! The buckets of a wheel: a tree of nodes by the digits of keys.
//!
//! The level of a key is that of the highest digit in which it differs from `base`. The root has
//! one node of 64 buckets for each of eleven levels. A bucket with more than [`SPLIT`] slots
//! becomes a node of the level below, by the next digit. So no bucket is long, except one of equal
//! keys.
//!
//! `base` moves forward to the start of a bucket, and back, and nodes are linked anew. When `base`
//! reaches the start of a bucket that was split, the bucket's node becomes the root of its level.
//! When `base` goes back out of that bucket, the roots below its level become children again.
//!
//! A slot in a bucket is live if the key of the slot belongs to that bucket, and stale otherwise.

use crate::store::{
    blocks::{BLOCK, Blocks, Chain},
    interface::Entry,
    keys::{Keys, UNCACHED},
};

const BITS: u32 = 6;
const DIGITS: usize = 1 << BITS;
pub(super) const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// A bucket with more slots than this is split. Tests look at each entry after each step, so they
/// split small buckets.
const SPLIT: u32 = if cfg!(test) { 32 } else { 8_192 };

/// The parent of a node at the root.
const ROOT: u32 = u32::MAX;

/// A node of 64 buckets: those from number `64 * node` on.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// One bit for each bucket that is not empty.
    occupied: u64,
    /// The first key of its first bucket. At the root this follows from `base`, and the field has
    /// no meaning.
    start: u64,
    /// The bucket that became this node, or `ROOT`.
    parent: u32,
    level: u32,
}

/// The result of [`Levels::place`].
pub(super) struct Place {
    bucket: usize,
}

/// The nodes and buckets of a wheel, for keys above `base`.
#[derive(Debug)]
pub(super) struct Levels {
    /// All keys in the buckets are above this. One exception: if a part of a bucket of equal keys
    /// was taken, the keys of the rest may be equal to it.
    pub(super) base: u64,
    /// One bit for each level whose root node is not empty.
    occupied: u32,
    /// The root node of each level.
    root: [u32; LEVELS],
    /// The number of slots in all buckets, stale ones included.
    pub(super) count: usize,
    nodes: Vec<Node>,
    buckets: Vec<Chain>,
    /// The nodes that are not in use.
    spare: Vec<u32>,
    blocks: Blocks,
    /// The bucket from which the next sweep goes on.
    hand: usize,
    /// The entries that were [collected](Levels::collect) last, and older ones behind them. It
    /// never gets shorter.
    scratch: Vec<Entry>,
}

/// Returns the level of a key.
#[inline]
fn level_of(key: u64, base: u64) -> usize {
    ((u64::BITS - 1 - ((key ^ base) | 1).leading_zeros()) / BITS) as usize
}

/// Returns the digit of a key at a level, which is its bucket in the node.
#[inline]
fn digit_of(key: u64, level: usize) -> usize {
    (key >> (level as u32 * BITS)) as usize % DIGITS
}

/// Returns the first key of the node of this level to which a key belongs.
#[inline]
fn node_start(key: u64, level: usize) -> u64 {
    let bits = (level as u32 + 1) * BITS;
    if bits < u64::BITS {
        key >> bits << bits
    } else {
        0
    }
}

impl Levels {
    pub(super) fn new() -> Self {
        let mut levels = Self {
            base: u64::MAX,
            occupied: 0,
            root: [0; LEVELS],
            count: 0,
            nodes: Vec::new(),
            buckets: Vec::new(),
            spare: Vec::new(),
            blocks: Blocks::default(),
            hand: 0,
            scratch: Vec::new(),
        };
        levels.take_roots();
        levels
    }

    /// Makes an empty root node for each level.
    fn take_roots(&mut self) {
        // One allocation of each array, in place of one for each time that it doubles.
        self.nodes.reserve(LEVELS);
        self.buckets.reserve(LEVELS * DIGITS);
        for level in 0..LEVELS {
            self.root[level] = self.take_node(level, ROOT, 0);
        }
    }

    /// Removes all slots, and keeps the memory. It takes as long as making a few nodes.
    pub(super) fn clear(&mut self) {
        self.base = u64::MAX;
        self.occupied = 0;
        self.count = 0;
        self.hand = 0;
        self.nodes.clear();
        self.buckets.clear();
        self.spare.clear();
        self.blocks.clear();
        self.take_roots();
    }

    /// Returns whether there is no slot, not even a stale one.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Returns the bucket of a key above `base`, if a slot can be [put](Levels::put) there without
    /// a change of other blocks or nodes: the bucket need not be split, and its first block has
    /// room.
    #[inline]
    pub(super) fn place(&self, key: u64) -> Option<Place> {
        if key <= self.base {
            return None;
        }
        let mut level = level_of(key, self.base);
        let mut bucket = self.root[level] as usize * DIGITS + digit_of(key, level);
        let mut chain = self.buckets.get(bucket)?;
        // The count of a bucket that was split is above `SPLIT`.
        while chain.count >= SPLIT {
            let node = chain.as_other()?;
            level -= 1;
            bucket = node as usize * DIGITS + digit_of(key, level);
            chain = self.buckets.get(bucket)?;
        }
        self.blocks.has_room(*chain).then_some(Place { bucket })
    }

    /// Puts a slot into the bucket that `place` has just returned.
    #[inline]
    pub(super) fn put(&mut self, place: Place, slot: u32) {
        // The bucket has a slot already, so its bits are set.
        if let Some(chain) = self.buckets.get_mut(place.bucket) {
            self.blocks.put(chain, slot);
            self.count += 1;
        }
    }

    /// Adds a slot whose key is above `base`.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry, keys: &mut Keys) {
        let top = level_of(entry.key, self.base);
        let mut level = top;
        let mut bucket = self.root[level] as usize * DIGITS + digit_of(entry.key, level);
        while let Some(node) = self.buckets[bucket].as_other() {
            level -= 1;
            bucket = node as usize * DIGITS + digit_of(entry.key, level);
        }
        self.append(bucket, entry.slot);
        self.occupied |= 1 << top;
        if self.buckets[bucket].count > SPLIT && level > 0 {
            self.split(bucket, entry.key, level, keys);
        }
    }

    /// Returns whether two keys above `base` surely belong to one bucket. It may return `false` for
    /// two keys in a bucket below the root.
    #[inline]
    pub(super) fn are_together(&self, a: u64, b: u64) -> bool {
        let level = level_of(a, self.base);
        if (a ^ b) >> (level as u32 * BITS) != 0 {
            return false;
        }
        let bucket = self.root[level] as usize * DIGITS + digit_of(a, level);
        self.buckets[bucket].as_other().is_none()
    }

    /// Adds a slot to a bucket that is not split.
    #[inline]
    fn append(&mut self, bucket: usize, slot: u32) {
        let chain = &mut self.buckets[bucket];
        if chain.count == 0 {
            self.nodes[bucket / DIGITS].occupied |= 1 << (bucket % DIGITS);
        }
        self.blocks.push(chain, slot);
        self.count += 1;
    }

    /// Takes the slots of a bucket of this level, whose first key is `start`. Returns how many of
    /// them are live. Their entries are the first in `scratch`, and their keys have to be
    /// [restored](Keys::restore). If the bucket has more than `most` slots, some may stay in it.
    fn collect(
        &mut self,
        bucket: usize,
        level: usize,
        start: u64,
        most: usize,
        keys: &mut Keys,
    ) -> usize {
        let shift = level as u32 * BITS;
        let mut chain = self.buckets[bucket];
        let before = chain.count;
        let room = most.saturating_add(BLOCK).min(before as usize);
        if self.scratch.len() < room {
            self.scratch.resize(room, Entry { key: 0, slot: 0 });
        }
        let far = keys.len() >= UNCACHED;
        let mut end = 0;
        while end < most && chain.count > 0 {
            if far {
                // The keys are in another order than the slots. While one block is read, the keys
                // of the next block are prefetched, and the slots of the block behind it.
                keys.fetch_all(self.blocks.second(chain));
            }
            if let Some(slots) = self.blocks.pop(&mut chain) {
                end += keys.collect(slots, shift, start >> shift, &mut self.scratch[end..]);
            }
        }
        self.buckets[bucket] = chain;
        self.count -= (before - chain.count) as usize;
        end
    }

    /// Fills an emptied bucket again, with the first entries of `scratch`, and restores their keys.
    fn refill(&mut self, bucket: usize, count: usize, keys: &mut Keys) {
        let mut chain = Chain::EMPTY;
        for entries in self.scratch[..count].chunks(BLOCK) {
            let places = self.blocks.add(&mut chain, entries.len());
            for (place, entry) in places.iter_mut().zip(entries) {
                *place = entry.slot;
                keys.set(entry.slot, entry.key);
            }
        }
        self.buckets[bucket] = chain;
        self.count += count;
    }

    /// Clears the bit of a bucket that got empty, and frees the nodes that got empty by that.
    fn note_emptied(&mut self, mut bucket: usize) {
        loop {
            let id = bucket / DIGITS;
            let node = &mut self.nodes[id];
            node.occupied &= !(1 << (bucket % DIGITS));
            if node.occupied != 0 {
                return;
            }
            // A root node stays, and only its bit goes.
            if node.parent == ROOT {
                self.occupied &= !(1 << node.level);
                return;
            }
            // The node is empty, so its parent's bucket is, too.
            bucket = node.parent as usize;
            self.spare.push(id as u32);
            self.buckets[bucket] = Chain::EMPTY;
        }
    }

    /// Returns an empty node.
    fn take_node(&mut self, level: usize, parent: u32, start: u64) -> u32 {
        let node = Node {
            occupied: 0,
            start,
            parent,
            level: level as u32,
        };
        if let Some(id) = self.spare.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        self.buckets.extend_from_slice(&[Chain::EMPTY; DIGITS]);
        (self.nodes.len() - 1) as u32
    }

    /// Splits the bucket of `key` into a node, unless most of its slots are stale.
    #[cold]
    fn split(&mut self, bucket: usize, key: u64, level: usize, keys: &mut Keys) {
        let width = level as u32 * BITS;
        let start = key >> width << width;
        let count = self.collect(bucket, level, start, usize::MAX, keys);
        if count as u32 > SPLIT / 2 {
            let node = self.take_node(level - 1, bucket as u32, start);
            self.buckets[bucket] = Chain::other(node);
            // `append` needs `self`, so the entries are taken out meanwhile.
            let entries = std::mem::take(&mut self.scratch);
            keys.restore(&entries[..count]);
            for entry in &entries[..count] {
                let digit = digit_of(entry.key, level - 1);
                self.append(node as usize * DIGITS + digit, entry.slot);
            }
            self.scratch = entries;
        } else {
            self.refill(bucket, count, keys);
        }
    }

    /// Takes the first bucket, and moves `base` to its first key. Its live entries are put into
    /// `out`, which is empty before; there may be none. Their keys have to be
    /// [restored](Keys::restore). Returns whether all the keys are equal. Of equal keys, at most
    /// `most` and a block come at once.
    pub(super) fn take_first(
        &mut self,
        most: usize,
        keys: &mut Keys,
        out: &mut Vec<Entry>,
    ) -> bool {
        let mut level = self.occupied.trailing_zeros() as usize;
        loop {
            let node = self.root[level];
            let digit = self.nodes[node as usize].occupied.trailing_zeros();
            let bucket = node as usize * DIGITS + digit as usize;
            let within = u64::from(digit) << (level as u32 * BITS);
            let start = node_start(self.base, level) | within;
            let Some(child) = self.buckets[bucket].as_other() else {
                let most = if level == 0 { most } else { usize::MAX };
                let count = self.collect(bucket, level, start, most, keys);
                out.extend_from_slice(&self.scratch[..count]);
                if self.buckets[bucket].count == 0 {
                    self.note_emptied(bucket);
                }
                self.base = start;
                return level == 0;
            };
            // A bucket that was split becomes the root of its level. The old root is empty: its
            // keys would come before this bucket.
            self.buckets[bucket] = Chain::EMPTY;
            self.note_emptied(bucket);
            level -= 1;
            self.spare.push(self.root[level]);
            self.root[level] = child;
            self.nodes[child as usize].parent = ROOT;
            self.occupied |= 1 << level;
            self.base = start;
        }
    }

    /// Moves `base` back to `to`, which is below it.
    pub(super) fn go_back(&mut self, to: u64) {
        let top = level_of(to, self.base);
        let below = (1 << top) - 1;
        // The nodes below that level belong to the bucket that `base` leaves. This bucket is empty:
        // its keys are in those nodes.
        while self.occupied & below != 0 {
            let level = self.occupied.trailing_zeros() as usize;
            let above = self.root[level + 1];
            let digit = digit_of(self.base, level + 1);
            let bucket = above as usize * DIGITS + digit;
            let child = std::mem::replace(&mut self.root[level], ROOT);
            self.root[level] = self.take_node(level, ROOT, 0);
            let node = &mut self.nodes[child as usize];
            node.parent = bucket as u32;
            node.start = node_start(self.base, level);
            self.buckets[bucket] = Chain::other(child);
            self.nodes[above as usize].occupied |= 1 << digit;
            self.occupied &= !(1 << level);
            self.occupied |= 1 << (level + 1);
        }
        self.base = to;
    }

    /// Removes stale slots from the next buckets, until it has looked at `least` slots, or has
    /// passed the last bucket. Returns how many slots it has looked at (a node without slots counts
    /// as one), and whether it has passed the last bucket.
    pub(super) fn sweep(&mut self, least: usize, keys: &mut Keys) -> (usize, bool) {
        let mut looks = 0;
        while looks < least {
            let id = self.hand / DIGITS;
            let Some(&node) = self.nodes.get(id) else {
                self.hand = 0;
                return (looks, true);
            };
            // The next bucket of this node that is not empty, or else the next node.
            let ahead = node.occupied >> (self.hand % DIGITS);
            if ahead == 0 {
                self.hand = (id + 1) * DIGITS;
                looks += 1;
                continue;
            }
            let bucket = self.hand + ahead.trailing_zeros() as usize;
            self.hand = bucket + 1;
            if self.buckets[bucket].as_other().is_none() {
                looks += self.sweep_bucket(node, bucket, keys);
            }
        }
        (looks, false)
    }

    /// Removes the stale slots of a bucket. Returns how many slots it had.
    fn sweep_bucket(&mut self, node: Node, bucket: usize, keys: &mut Keys) -> usize {
        let level = node.level as usize;
        let start = match node.parent {
            ROOT => node_start(self.base, level),
            _ => node.start,
        };
        let start = start | ((bucket % DIGITS) as u64) << (node.level * BITS);
        let looks = self.buckets[bucket].count as usize;
        let count = self.collect(bucket, level, start, usize::MAX, keys);
        self.refill(bucket, count, keys);
        if count == 0 {
            self.note_emptied(bucket);
        }
        looks
    }
}

#[cfg(test)]
impl Levels {
    /// Returns the slots of the bucket to which a key above `base` belongs.
    pub(super) fn bucket(&self, key: u64) -> Vec<u32> {
        let mut level = level_of(key, self.base);
        let mut bucket = self.root[level] as usize * DIGITS + digit_of(key, level);
        while let Some(node) = self.buckets[bucket].as_other() {
            level -= 1;
            bucket = node as usize * DIGITS + digit_of(key, level);
        }
        self.slots(bucket)
    }

    fn slots(&self, bucket: usize) -> Vec<u32> {
        self.blocks.slots(self.buckets[bucket])
    }

    /// Asserts that each node is in its place, and that bits and counts agree with the content.
    /// Returns the number of slots.
    pub(super) fn check(&self) -> usize {
        let mut count = 0;
        let mut nodes = vec![false; self.nodes.len()];
        for (level, &root) in self.root.iter().enumerate() {
            let node = self.nodes[root as usize];
            assert_eq!(node.parent, ROOT);
            assert_eq!(node.occupied != 0, self.occupied & 1 << level != 0);
            let start = node_start(self.base, level);
            count += self.check_node(root, level, start, &mut nodes);
        }
        for &spare in &self.spare {
            let seen = std::mem::replace(&mut nodes[spare as usize], true);
            assert!(!seen, "node {spare} is in use and is not");
            assert_eq!(self.nodes[spare as usize].occupied, 0);
        }
        assert!(nodes.iter().all(|&seen| seen), "a node is lost");
        assert_eq!(count, self.count);
        count
    }

    fn check_node(&self, id: u32, level: usize, start: u64, nodes: &mut [bool]) -> usize {
        let seen = std::mem::replace(&mut nodes[id as usize], true);
        assert!(!seen, "node {id} is there twice");
        let node = self.nodes[id as usize];
        assert_eq!(node.level as usize, level);
        let mut count = 0;
        for digit in 0..DIGITS {
            let bucket = id as usize * DIGITS + digit;
            let chain = self.buckets[bucket];
            assert_eq!(chain.count != 0, node.occupied & 1 << digit != 0);
            let start = start | (digit as u64) << (level as u32 * BITS);
            let Some(child) = chain.as_other() else {
                assert_eq!(self.slots(bucket).len(), chain.count as usize);
                count += chain.count as usize;
                continue;
            };
            let below = self.nodes[child as usize];
            assert_eq!((below.parent, below.start), (bucket as u32, start));
            assert_ne!(below.occupied, 0, "nothing is in node {child}");
            count += self.check_node(child, level - 1, start, nodes);
        }
        count
    }

    /// Returns how many slots there is memory for, and how many nodes.
    pub(super) fn room(&self) -> (usize, usize) {
        (self.blocks.room(), self.nodes.len())
    }
}
