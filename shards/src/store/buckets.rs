//! Bags of entries, in blocks of one array.

use super::{Entry, slots::Slots, slots::VACANT};

/// Entries in a block.
const BLOCK: usize = 32;

/// No block.
const NONE: u32 = u32::MAX;

/// Bags of entries whose blocks are taken from one array, and given back to it: a bag is a chain of
/// blocks of which all but the first are full. Memory is what was held at most at once, and a block for
/// each bag in use. The position of an entry is its index in the array.
#[derive(Debug)]
pub(super) struct Buckets {
    entries: Vec<Entry>,
    /// The next block of the same bag, or the next free one.
    links: Vec<u32>,
    free: u32,
    /// For each bag the index after its last entry, which is in its first block; 0 if it is empty.
    ends: Box<[u32]>,
}

impl Buckets {
    pub(super) fn new(count: usize) -> Self {
        Self {
            entries: Vec::new(),
            links: Vec::new(),
            free: NONE,
            ends: vec![0; count].into(),
        }
    }

    pub(super) fn is_empty(&self, bucket: usize) -> bool {
        self.ends[bucket] == 0
    }

    pub(super) fn key(&self, at: u32) -> u64 {
        self.entries[at as usize].key
    }

    pub(super) fn set_key(&mut self, at: u32, key: u64) {
        self.entries[at as usize].key = key;
    }

    /// The key of some entry.
    pub(super) fn any_key(&self, bucket: usize) -> Option<u64> {
        let at = self.ends[bucket].checked_sub(1)?;
        Some(self.key(at))
    }

    /// Whether there are more than so many entries, give or take a block.
    pub(super) fn is_longer(&self, bucket: usize, most: usize) -> bool {
        let Some(last) = self.ends[bucket].checked_sub(1) else {
            return false;
        };
        let mut block = last as usize / BLOCK;
        for _ in 0..most / BLOCK {
            match self.links[block] {
                NONE => return false,
                next => block = next as usize,
            }
        }
        true
    }

    pub(super) fn push(&mut self, bucket: usize, entry: Entry, slots: &mut Slots) {
        let mut at = self.ends[bucket] as usize;
        if at % BLOCK == 0 {
            let full = match at {
                0 => NONE,
                _ => (at / BLOCK - 1) as u32,
            };
            let block = self.take_block();
            self.links[block] = full;
            at = block * BLOCK;
        }
        self.entries[at] = entry;
        slots.set(entry.slot, at as u32);
        self.ends[bucket] = at as u32 + 1;
    }

    /// Takes out the last entry.
    pub(super) fn pop(&mut self, bucket: usize) -> Option<Entry> {
        let at = self.ends[bucket].checked_sub(1)? as usize;
        self.ends[bucket] = if at % BLOCK > 0 {
            at as u32
        } else {
            let block = at / BLOCK;
            let next = std::mem::replace(&mut self.links[block], self.free);
            self.free = block as u32;
            match next {
                NONE => 0,
                next => (next + 1) * BLOCK as u32,
            }
        };
        Some(self.entries[at])
    }

    /// Takes out the entry at a position that is in this bucket.
    pub(super) fn remove(&mut self, bucket: usize, at: u32, slots: &mut Slots) {
        let last_at = self.ends[bucket] - 1;
        let last = self.pop(bucket).expect("there is one at this position");
        if last_at != at {
            self.entries[at as usize] = last;
            slots.set(last.slot, at);
        }
    }

    /// For how many entries there is memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.entries.len()
    }

    fn take_block(&mut self) -> usize {
        if self.free != NONE {
            let block = self.free as usize;
            self.free = self.links[block];
            return block;
        }
        let vacant = Entry {
            key: 0,
            slot: VACANT,
        };
        self.entries.extend_from_slice(&[vacant; BLOCK]);
        self.links.push(NONE);
        self.links.len() - 1
    }
}
