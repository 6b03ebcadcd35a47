//! Bags of slots, each a chain of blocks in one shared array. The buckets of a wheel are such
//! chains.

use tourbillon_sync::prefetch;

/// The number of slots in a block, which is a cache line.
pub(super) const BLOCK: usize = 16;

/// The index of no block.
const NONE: u32 = u32::MAX;

/// A bag of slots: a chain of blocks. All blocks but the first are full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// The index after the last slot of the first block; 0 if the chain is empty.
    end: u32,
    /// The number of slots.
    pub(super) count: u32,
}

impl Chain {
    pub(super) const EMPTY: Chain = Chain { end: 0, count: 0 };

    /// Creates a value that is no chain, but a number that its owner keeps in this place.
    pub(super) const fn other(number: u32) -> Self {
        Self {
            end: number,
            count: u32::MAX,
        }
    }

    /// Returns the number, if this is not a chain.
    #[inline]
    pub(super) fn as_other(self) -> Option<u32> {
        (self.count == u32::MAX).then_some(self.end)
    }
}

/// The blocks of all chains. They use memory for the most slots that were held at once, and a block
/// for each chain in use.
#[derive(Debug)]
pub(super) struct Blocks {
    slots: Vec<u32>,
    /// The next block of the same chain, or the next free one.
    links: Vec<u32>,
    /// The first free block, or `NONE`.
    free: u32,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            links: Vec::new(),
            free: NONE,
        }
    }
}

impl Blocks {
    /// Adds a slot to a chain.
    #[inline]
    pub(super) fn push(&mut self, chain: &mut Chain, slot: u32) {
        let mut at = chain.end as usize;
        if at % BLOCK == 0 {
            // The first block is full, or there is none. A new block becomes the first.
            let full = match chain.count {
                0 => NONE,
                _ => (at / BLOCK - 1) as u32,
            };
            let block = self.take_block();
            self.links[block] = full;
            at = block * BLOCK;
        }
        self.slots[at] = slot;
        chain.end = at as u32 + 1;
        chain.count += 1;
    }

    /// Returns whether the first block of a chain has room.
    #[inline]
    pub(super) fn has_room(&self, chain: Chain) -> bool {
        let at = chain.end as usize;
        at % BLOCK != 0 && at < self.slots.len()
    }

    /// Adds a slot to the first block of a chain, which [has room](Blocks::has_room).
    #[inline]
    pub(super) fn put(&mut self, chain: &mut Chain, slot: u32) {
        if let Some(place) = self.slots.get_mut(chain.end as usize) {
            *place = slot;
            chain.end += 1;
            chain.count += 1;
        }
    }

    /// Takes the first block out of a chain, and returns its slots.
    #[inline]
    pub(super) fn pop(&mut self, chain: &mut Chain) -> Option<&[u32]> {
        if chain.count == 0 {
            return None;
        }
        let end = chain.end as usize;
        let block = (end - 1) / BLOCK;
        let slots = &self.slots[block * BLOCK..end];
        // The block joins the free ones. Its slots stay readable until the next push.
        let next = std::mem::replace(&mut self.links[block], self.free);
        self.free = block as u32;
        chain.count -= slots.len() as u32;
        chain.end = match chain.count {
            0 => 0,
            _ => (next + 1) * BLOCK as u32,
        };
        Some(slots)
    }

    /// Puts a block for `slots` slots, [`BLOCK`] at most, before the other blocks of a chain, which
    /// are full. The caller fills the returned slots.
    #[inline]
    pub(super) fn add(&mut self, chain: &mut Chain, slots: usize) -> &mut [u32] {
        let before = match chain.count {
            0 => NONE,
            _ => (chain.end as usize / BLOCK - 1) as u32,
        };
        let block = self.take_block();
        self.links[block] = before;
        let at = block * BLOCK;
        chain.end = (at + slots) as u32;
        chain.count += slots as u32;
        &mut self.slots[at..at + slots]
    }

    /// Returns the slots of the second block of a chain that is not empty, or none if there is no
    /// second block. Prefetches the third block.
    #[inline]
    pub(super) fn second(&self, chain: Chain) -> &[u32] {
        let last = chain.end as usize - 1;
        if chain.count as usize <= last % BLOCK + 1 {
            return &[];
        }
        let second = self.links[last / BLOCK] as usize;
        let third = self.links[second];
        if third != NONE {
            // A block may be on two cache lines.
            let at = self.slots.as_ptr().wrapping_add(third as usize * BLOCK);
            prefetch(at, BLOCK * size_of::<u32>() + 1);
        }
        &self.slots[second * BLOCK..][..BLOCK]
    }

    /// Frees all blocks. No chain may be used after that.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.links.clear();
        self.free = NONE;
    }

    /// Returns a free block, or a new one.
    #[inline]
    fn take_block(&mut self) -> usize {
        if self.free != NONE {
            let block = self.free as usize;
            self.free = self.links[block];
            return block;
        }
        self.slots.extend_from_slice(&[0; BLOCK]);
        self.links.push(NONE);
        self.links.len() - 1
    }

    /// Returns the slots of a chain.
    #[cfg(test)]
    pub(super) fn slots(&self, chain: Chain) -> Vec<u32> {
        let mut slots = Vec::new();
        let (mut end, mut count) = (chain.end as usize, chain.count as usize);
        while count > 0 {
            let block = (end - 1) / BLOCK;
            slots.extend_from_slice(&self.slots[block * BLOCK..end]);
            count -= end - block * BLOCK;
            end = (self.links[block].wrapping_add(1) as usize) * BLOCK;
        }
        slots
    }

    /// Returns the number of slots that there is memory for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_block_of_a_chain_is_found() {
        for (count, second) in [(1, 0..0), (15, 0..0), (16, 0..0), (17, 0..16), (32, 0..16)]
            .into_iter()
            .chain([(33, 16..32), (48, 16..32), (49, 32..48)])
        {
            let mut blocks = Blocks::default();
            let (mut chain, mut other) = (Chain::EMPTY, Chain::EMPTY);
            for slot in 0..count {
                blocks.push(&mut chain, slot);
                // So that the blocks of a chain are not next to each other.
                blocks.push(&mut other, 1_000 + slot);
            }
            assert_eq!(
                blocks.second(chain),
                second.collect::<Vec<_>>(),
                "of {count}"
            );
        }
    }

    #[test]
    fn a_block_has_room_for_sixteen_slots() {
        let mut blocks = Blocks::default();
        let mut chain = Chain::EMPTY;
        assert!(!blocks.has_room(chain), "there is no block");
        for slot in 0..40 {
            if slot % 16 == 0 {
                assert!(!blocks.has_room(chain), "at {slot}");
                blocks.push(&mut chain, slot);
            } else {
                assert!(blocks.has_room(chain), "at {slot}");
                blocks.put(&mut chain, slot);
            }
        }
        let mut slots = blocks.slots(chain);
        slots.sort_unstable();
        assert_eq!(slots, (0..40).collect::<Vec<_>>());
    }
}
