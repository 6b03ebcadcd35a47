//! An indexed 4-ary min-heap.
//!
//! Four children a node halve the depth against a binary heap, and stand side by side (the shape is
//! libev's; the indexing by slot is the textbook's, Sedgewick's `IndexMinPQ`).

use super::Store;
use crate::node::Location;

const ARITY: usize = 4;
const VACANT: u32 = u32::MAX;

/// 12 bytes, so that four children span less than a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Entry {
    key: u64,
    slot: u32,
}

/// The store of choice for deadlines of any distribution: an indexed 4-ary heap.
///
/// O(log n) to insert, remove and rekey; O(1) for the first. 16 bytes an entry.
///
/// ```
/// use tourbillon_shards::store::{Heap, Store};
///
/// let mut heap = Heap::new();
/// let late = heap.insert(30);
/// let early = heap.insert(10);
/// heap.rekey(late, 5);
/// assert_eq!(heap.first(), Some((5, late)));
/// heap.remove(late);
/// assert_eq!(heap.first(), Some((10, early)));
/// ```
#[derive(Debug, Default)]
pub struct Heap {
    entries: Vec<Entry>,
    /// Slot to position in `entries`; `VACANT` where the slot is free.
    positions: Vec<u32>,
    free: Vec<u32>,
}

impl Heap {
    /// An empty heap.
    pub fn new() -> Self {
        Self::default()
    }

    fn position(&self, slot: u32) -> usize {
        let at = self.positions.get(slot as usize).copied().unwrap_or(VACANT);
        assert!(at != VACANT, "slot {slot} is not in the heap");
        at as usize
    }

    fn place(&mut self, at: usize, entry: Entry) {
        self.entries[at] = entry;
        self.positions[entry.slot as usize] = at as u32;
    }

    /// Moves `entry`, for which there is a hole at `at`, up to where it belongs.
    fn sift_up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            let above = self.entries[parent];
            if above.key <= entry.key {
                break;
            }
            self.place(at, above);
            at = parent;
        }
        self.place(at, entry);
    }

    /// The child of `at` with the smallest key, if it has children.
    #[inline]
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * ARITY + 1;
        let children = self.entries.get(first..)?;
        let least = match children.first_chunk::<ARITY>() {
            // Two pairs and a final, without a branch to mispredict.
            Some(four) => {
                let left = usize::from(four[1].key < four[0].key);
                let right = 2 + usize::from(four[3].key < four[2].key);
                if four[right].key < four[left].key {
                    right
                } else {
                    left
                }
            }
            None => (0..children.len()).min_by_key(|&child| children[child].key)?,
        };
        Some(first + least)
    }

    /// Moves `entry`, for which there is a hole at `at`, down to where it belongs.
    fn sift_down(&mut self, mut at: usize, entry: Entry) {
        while let Some(least) = self.least_child(at) {
            let below = self.entries[least];
            if below.key >= entry.key {
                break;
            }
            self.place(at, below);
            at = least;
        }
        self.place(at, entry);
    }

    fn sift(&mut self, at: usize, entry: Entry) {
        if at > 0 && self.entries[(at - 1) / ARITY].key > entry.key {
            self.sift_up(at, entry);
        } else {
            self.sift_down(at, entry);
        }
    }
}

impl Store for Heap {
    fn insert(&mut self, key: u64) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(
                self.positions.len() <= Location::MAX_SLOT as usize,
                "the heap is full"
            );
            self.positions.push(VACANT);
            (self.positions.len() - 1) as u32
        });
        let entry = Entry { key, slot };
        self.entries.push(entry);
        self.sift_up(self.entries.len() - 1, entry);
        slot
    }

    fn remove(&mut self, slot: u32) -> u64 {
        let at = self.position(slot);
        let key = self.entries[at].key;
        let last = self
            .entries
            .pop()
            .expect("a slot is held, so there is an entry");
        self.positions[slot as usize] = VACANT;
        self.free.push(slot);
        if at < self.entries.len() {
            self.sift(at, last);
        }
        key
    }

    fn rekey(&mut self, slot: u32, key: u64) {
        let at = self.position(slot);
        self.sift(at, Entry { key, slot });
    }

    fn key(&self, slot: u32) -> u64 {
        self.entries[self.position(slot)].key
    }

    fn first(&self) -> Option<(u64, u32)> {
        self.entries.first().map(|entry| (entry.key, entry.slot))
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}
