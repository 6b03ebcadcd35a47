//! The buckets of a wheel: digits of keys, as deep as they are full.
//!
//! The level of a key is that of the highest digit in which it differs from `base`; at the root there is one
//! node of 64 buckets for each of eleven levels. A bucket of more than [`SPLIT`] slots becomes a node of the level
//! below, by the next digit. So no bucket is long, but one of equal keys, and `base` goes forward past the start
//! of a bucket, and back, by relinking nodes: a bucket that was split is the root of its level, once `base` is at
//! its start, and the roots below a level are children again where `base` leaves that level's bucket.
//!
//! What is in a bucket is live if the key of its slot is one of that bucket, and stale otherwise.

use super::super::{
    Entry,
    blocks::{BLOCK, Blocks, Chain},
    keys::Keys,
    wheel::FAR,
};

const BITS: u32 = 6;
const DIGITS: usize = 1 << BITS;
pub(super) const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// A bucket with more slots is split; in tests, which look at each entry after each step, many are.
const SPLIT: u32 = if cfg!(test) { 32 } else { 8_192 };

/// What stands in the place of a parent at the root.
const ROOT: u32 = u32::MAX;

/// 64 buckets: those of number `64 * node` and on.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Which of its buckets are not empty.
    occupied: u64,
    /// Where its first bucket begins, unless it is at the root: there `base` says so.
    start: u64,
    /// The bucket in whose place it is.
    parent: u32,
    level: u32,
}

/// See [`Levels::place`].
pub(super) struct Place {
    bucket: usize,
}

#[derive(Debug)]
pub(super) struct Levels {
    /// No key here is up to this; but what is left of a bucket of equal keys, of which some were taken, may be
    /// equal to it.
    pub(super) base: u64,
    /// Which levels have something at the root.
    occupied: u32,
    root: [u32; LEVELS],
    /// How many slots there are in all buckets, those that are stale among them.
    pub(super) count: usize,
    nodes: Vec<Node>,
    buckets: Vec<Chain>,
    /// Nodes that are not in use.
    spare: Vec<u32>,
    blocks: Blocks,
    /// The bucket that is swept next.
    hand: usize,
    /// What was [collected](Levels::collect) last, and before: it gets no shorter.
    scratch: Vec<Entry>,
}

#[inline]
fn level_of(key: u64, base: u64) -> usize {
    ((u64::BITS - 1 - ((key ^ base) | 1).leading_zeros()) / BITS) as usize
}

#[inline]
fn digit_of(key: u64, level: usize) -> usize {
    (key >> (level as u32 * BITS)) as usize % DIGITS
}

/// Where the node of this level begins in which a key is.
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

    fn take_roots(&mut self) {
        for level in 0..LEVELS {
            self.root[level] = self.take_node(level, ROOT, 0);
        }
    }

    /// Takes out all that there is, and leaves the memory: as long as it takes to make a few nodes.
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

    /// Whether there is nothing, not even what is stale.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Where a slot of this key would stand, if it can be [put](Levels::put) there as it is: its bucket is not split by
    /// that, and has room in its first block; and the key is above `base`.
    #[inline]
    pub(super) fn place(&self, key: u64) -> Option<Place> {
        if key <= self.base {
            return None;
        }
        let mut level = level_of(key, self.base);
        let mut bucket = self.root[level] as usize * DIGITS + digit_of(key, level);
        let mut chain = self.buckets.get(bucket)?;
        // One that was split has a count that is beyond that.
        while chain.count >= SPLIT {
            let node = chain.as_other()?;
            level -= 1;
            bucket = node as usize * DIGITS + digit_of(key, level);
            chain = self.buckets.get(bucket)?;
        }
        self.blocks.has_room(*chain).then_some(Place { bucket })
    }

    /// Puts a slot where `place` said just now.
    #[inline]
    pub(super) fn put(&mut self, place: Place, slot: u32) {
        // There is one, and so its bits are set.
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

    /// Whether two keys above `base` belong to the same bucket, as far as a glance tells.
    #[inline]
    pub(super) fn are_together(&self, a: u64, b: u64) -> bool {
        let level = level_of(a, self.base);
        if (a ^ b) >> (level as u32 * BITS) != 0 {
            return false;
        }
        let bucket = self.root[level] as usize * DIGITS + digit_of(a, level);
        self.buckets[bucket].as_other().is_none()
    }

    #[inline]
    fn append(&mut self, bucket: usize, slot: u32) {
        let chain = &mut self.buckets[bucket];
        if chain.count == 0 {
            self.nodes[bucket / DIGITS].occupied |= 1 << (bucket % DIGITS);
        }
        self.blocks.push(chain, slot);
        self.count += 1;
    }

    /// Takes what is in a bucket of this level, which begins at `start`, and answers how many of it are live: those are the
    /// first in `scratch`, and their keys have to be [restored](Keys::restore). Of more than `most` in it some may stay.
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
        let far = keys.len() >= FAR;
        let mut end = 0;
        while end < most && chain.count > 0 {
            if far {
                // The slots are in one order and their keys in another. While one block is looked at, the keys of the next
                // come, and the slots of the one behind it.
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

    /// Fills a bucket that is empty again, with the first of `scratch`, whose keys are restored.
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

    /// Notes that a bucket is empty, and gives back the nodes that are empty by that.
    fn note_emptied(&mut self, mut bucket: usize) {
        loop {
            let id = bucket / DIGITS;
            let node = &mut self.nodes[id];
            node.occupied &= !(1 << (bucket % DIGITS));
            if node.occupied != 0 {
                return;
            }
            if node.parent == ROOT {
                self.occupied &= !(1 << node.level);
                return;
            }
            bucket = node.parent as usize;
            self.spare.push(id as u32);
            self.buckets[bucket] = Chain::EMPTY;
        }
    }

    /// An empty node.
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

    /// Makes a node of a bucket, in which `key` is, unless most of it is stale.
    #[cold]
    fn split(&mut self, bucket: usize, key: u64, level: usize, keys: &mut Keys) {
        let width = level as u32 * BITS;
        let start = key >> width << width;
        let count = self.collect(bucket, level, start, usize::MAX, keys);
        if count as u32 > SPLIT / 2 {
            let node = self.take_node(level - 1, bucket as u32, start);
            self.buckets[bucket] = Chain::other(node);
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

    /// Takes the first bucket, and moves `base` to where it begins. What is live in it is in `out`, which was
    /// empty, its keys have to be [restored](Keys::restore); there may be nothing. Answers whether all the keys
    /// are equal: of those not more come at once than `most` and a block.
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
            // What was split is the root of its level from here on: that one is empty, being before this.
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

    /// Moves `base` back to `to`.
    pub(super) fn go_back(&mut self, to: u64) {
        let top = level_of(to, self.base);
        let below = (1 << top) - 1;
        // What is below that level is in the bucket that `base` leaves. It had none itself, being before all.
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

    /// Takes what is stale out of the next buckets, until `least` slots were looked at, or a round is over, which
    /// the second answer tells; the first is how many were looked at, or as much as that took.
    pub(super) fn sweep(&mut self, least: usize, keys: &mut Keys) -> (usize, bool) {
        let mut looks = 0;
        while looks < least {
            let id = self.hand / DIGITS;
            let Some(&node) = self.nodes.get(id) else {
                self.hand = 0;
                return (looks, true);
            };
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
    /// The slots of the bucket to which a key above `base` belongs.
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

    /// Each node is in its place, and each bit and each count tells what is there.
    pub(super) fn check(&self) {
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

    /// For how many slots there is memory, and for how many nodes.
    pub(super) fn room(&self) -> (usize, usize) {
        (self.blocks.room(), self.nodes.len())
    }
}
