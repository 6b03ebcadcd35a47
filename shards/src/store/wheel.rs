//! An indexed hierarchical wheel with exact keys: no tick, and no bound.
//!
//! The hierarchy is that of Varghese and Lauck ("Hashed and hierarchical timing wheels", 1987), without
//! a hand that moves: as in a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the
//! shortest path problem", 1990) the level of a key is that of the highest digit in which it differs
//! from `base`, so that eleven levels of 64 buckets cover all 64 bits.
//!
//! - All keys up to `base` are in the *front*, all others in the buckets. The front is never empty unless
//!   the store is: so the first key is known at any moment, without a search.
//! - When the front has run out, the first bucket comes forward. A small one is sorted, and is the front's
//!   *run*. A large one is dealt out to the levels below it, until there is a small one.
//! - What is inserted up to `base`, among it what is overdue, goes to a heap, which is the front's other
//!   half. If that gets large, because the first timer to come was far ahead of those that followed,
//!   `base` goes back: no more is moved for it than has been inserted since.

use super::{
    Entry, Store,
    buckets::Buckets,
    slots::{Slots, VACANT},
    tree::Tree,
};

const BITS: u32 = 6;
const DIGITS: usize = 1 << BITS;
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// A bucket of about so many entries is sorted in place of being dealt out.
const SORTED: usize = 512;

/// The front's heap may have so many entries before it is asked whether `base` should go back.
const CROWD: usize = 256;

/// How far ahead of their turn the entries of a run are named.
const SOON: usize = 16;

/// Bits of a position that say where an entry is; without them it is in a bucket.
const TREE: u32 = 1 << 31;
const RUN: u32 = 0b11 << 30;

/// The largest slot: positions have the bits of `TREE` and `RUN` to spare.
const MAX_SLOT: u32 = (1 << 29) - 1;

/// The store for very many timers of any distribution of which most fire: an indexed hierarchical wheel.
///
/// An entry is moved once for each level that it passes, most of them one to three times, and sorted
/// among some hundreds. So inserting, removing and firing cost about the same however many there are, but
/// not each time: whoever takes out the last entry of the front pays for the next bucket, which may hold
/// as many as fall due in the widest bucket's time. Keys are exact, and any key will do at any time.
///
/// 16 bytes an entry, and 384 for each bucket in use, of which there are 704. Nothing shrinks, and an entry stands
/// in one of three parts in turn, each of which keeps room for the most that it ever held: after a peak there may
/// be 40 bytes for each entry of it, and as arrays grow by doubling twice that. Holds up to 2^29 entries.
///
/// ```
/// use tourbillon_shards::store::{Store, Wheel};
///
/// let mut wheel = Wheel::new();
/// let years = wheel.insert(100 * 365 * 24 * 3_600 * 1_000_000_000);
/// let soon = wheel.insert(11);
/// let sooner = wheel.insert(10);
/// assert_eq!(wheel.first(), Some((10, sooner)));
/// wheel.remove(sooner);
/// assert_eq!(wheel.first(), Some((11, soon)));
/// wheel.rekey(years, 0);
/// assert_eq!(wheel.first(), Some((0, years)));
/// ```
#[derive(Debug)]
pub struct Wheel {
    slots: Slots,
    len: usize,
    /// No key of the buckets is up to this, and no key of the front is above it.
    base: u64,
    buckets: Buckets,
    /// Which buckets of each level are not empty.
    occupied: [u64; LEVELS],
    /// Which levels have such.
    levels: u32,
    /// How many entries there are on each level.
    counts: [usize; LEVELS],
    /// The bucket that came forward, sorted; those that were removed are `VACANT`.
    run: Vec<Entry>,
    /// Where the first of `run` is that is still there.
    head: usize,
    /// What came later, and belongs to the front.
    tree: Tree<TREE>,
    /// How large `tree` may get before it is looked whether `base` should go back.
    crowd: usize,
    /// How often an entry was moved on, or back.
    #[cfg(test)]
    moves: usize,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            slots: Slots::default(),
            len: 0,
            base: 0,
            buckets: Buckets::new(LEVELS * DIGITS),
            occupied: [0; LEVELS],
            levels: 0,
            counts: [0; LEVELS],
            run: Vec::new(),
            head: 0,
            tree: Tree::default(),
            crowd: CROWD,
            #[cfg(test)]
            moves: 0,
        }
    }
}

/// The level at which two keys differ that are not equal.
#[inline]
fn level_of(key: u64, base: u64) -> usize {
    ((key ^ base).ilog2() / BITS) as usize
}

#[inline]
fn bucket_of(key: u64, level: usize) -> usize {
    let digit = (key >> (level as u32 * BITS)) as usize % DIGITS;
    level * DIGITS + digit
}

impl Wheel {
    /// An empty wheel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts an entry where it belongs; true if that is the front.
    #[inline]
    fn place(&mut self, entry: Entry) -> bool {
        if entry.key <= self.base {
            self.tree.push(entry, &mut self.slots);
            return true;
        }
        let level = level_of(entry.key, self.base);
        let bucket = bucket_of(entry.key, level);
        self.buckets.push(bucket, entry, &mut self.slots);
        self.counts[level] += 1;
        self.occupied[level] |= 1 << (bucket % DIGITS);
        self.levels |= 1 << level;
        false
    }

    /// Places an entry that comes from outside. The store may be without a front afterwards.
    #[inline]
    fn accept(&mut self, entry: Entry) {
        if self.levels == 0 && self.front_is_empty() {
            self.base = entry.key;
            self.set_crowd();
        }
        if self.place(entry) && self.tree.len() > self.crowd {
            self.disperse();
        }
    }

    /// Takes an entry out of where it is. The store may be without a front afterwards.
    #[inline]
    fn withdraw(&mut self, at: u32) -> u64 {
        if at >= RUN {
            let at = (at & !RUN) as usize;
            let key = self.run[at].key;
            self.run[at].slot = VACANT;
            self.skip_holes();
            key
        } else if at >= TREE {
            self.tree.remove(at, &mut self.slots)
        } else {
            let key = self.buckets.key(at);
            let level = level_of(key, self.base);
            let bucket = bucket_of(key, level);
            self.buckets.remove(bucket, at, &mut self.slots);
            self.counts[level] -= 1;
            self.note_emptied(level, bucket);
            key
        }
    }

    fn note_emptied(&mut self, level: usize, bucket: usize) {
        if self.buckets.is_empty(bucket) {
            self.occupied[level] &= !(1 << (bucket % DIGITS));
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }

    fn skip_holes(&mut self) {
        while self.run.get(self.head).is_some_and(|it| it.slot == VACANT) {
            self.head += 1;
        }
    }

    fn front_is_empty(&self) -> bool {
        self.head == self.run.len() && self.tree.len() == 0
    }

    /// Whether the first entry is that of the run, and which it is.
    #[inline]
    fn front(&self) -> Option<(bool, Entry)> {
        match (self.run.get(self.head), self.tree.first()) {
            (Some(&run), Some(tree)) if tree.key < run.key => Some((false, tree)),
            (Some(&run), _) => Some((true, run)),
            (None, tree) => tree.map(|tree| (false, tree)),
        }
    }

    /// Brings buckets forward until there is a front, if there is none.
    #[inline]
    fn refill(&mut self) {
        if self.levels != 0 && self.front_is_empty() {
            self.bring_forward();
        }
    }

    #[cold]
    fn bring_forward(&mut self) {
        while self.levels != 0 && self.tree.len() == 0 {
            let level = self.levels.trailing_zeros() as usize;
            let digit = self.occupied[level].trailing_zeros() as usize;
            let bucket = level * DIGITS + digit;
            // All in a bucket of the lowest level are equal.
            if level == 0 || !self.buckets.is_longer(bucket, SORTED) {
                self.sort(level, bucket);
                break;
            }
            self.deal_out(level, bucket);
        }
        self.set_crowd();
    }

    /// As many as are in the heap now have to come before any of them are moved: that pays for it.
    fn set_crowd(&mut self) {
        self.crowd = CROWD.max(2 * self.tree.len());
    }

    /// For tests, which count.
    fn note_moves(&mut self, _count: usize) {
        #[cfg(test)]
        (self.moves += _count);
    }

    /// The entries of a bucket are the run from now on.
    fn sort(&mut self, level: usize, bucket: usize) {
        self.run.clear();
        self.head = 0;
        while let Some(entry) = self.buckets.pop(bucket) {
            self.run.push(entry);
        }
        self.note_moves(self.run.len());
        self.counts[level] -= self.run.len();
        self.note_emptied(level, bucket);
        if level > 0 {
            self.run.sort_unstable_by_key(|entry| entry.key);
        }
        for (at, entry) in self.run.iter().enumerate() {
            self.slots.set(entry.slot, at as u32 | RUN);
        }
        self.base = self.run.last().map_or(self.base, |last| last.key);
    }

    /// Moves the entries of the first bucket to lower levels.
    fn deal_out(&mut self, level: usize, bucket: usize) {
        let Some(key) = self.buckets.any_key(bucket) else {
            return;
        };
        // Where the bucket begins: those that stand there are the front.
        let width = 1 << (level as u32 * BITS);
        self.base = key & !(width - 1);
        while let Some(entry) = self.buckets.pop(bucket) {
            self.counts[level] -= 1;
            self.note_moves(1);
            self.place(entry);
        }
        self.note_emptied(level, bucket);
    }

    /// Takes `base` back to the first key, if that is worth its cost, so that what has crowded into the
    /// front's heap goes to buckets.
    #[cold]
    fn disperse(&mut self) {
        let (_, first) = self.front().expect("there is a crowd");
        self.crowd = 2 * self.tree.len();
        if first.key == self.base {
            return;
        }
        // Keys of lower levels share the digit of `base` at this one, and go to that bucket. Those of
        // this level and above stay where they are.
        let level = level_of(first.key, self.base);
        let below: usize = self.counts[..level].iter().sum();
        if below + self.run.len() - self.head > self.tree.len() {
            return;
        }
        let mut moved: Vec<Entry> = self.tree.drain().collect();
        let run = self.run.drain(..).skip(std::mem::take(&mut self.head));
        moved.extend(run.filter(|entry| entry.slot != VACANT));
        for level in 0..level {
            while self.occupied[level] != 0 {
                let digit = self.occupied[level].trailing_zeros() as usize;
                let bucket = level * DIGITS + digit;
                while let Some(entry) = self.buckets.pop(bucket) {
                    moved.push(entry);
                }
                self.note_emptied(level, bucket);
            }
            self.counts[level] = 0;
        }
        self.base = first.key;
        self.note_moves(moved.len());
        for entry in moved {
            self.place(entry);
        }
        self.set_crowd();
    }
}

impl Store for Wheel {
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = self.slots.take(MAX_SLOT);
        self.accept(Entry { key, slot });
        self.len += 1;
        slot
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> u64 {
        let at = self.slots.position(slot);
        let key = self.withdraw(at);
        self.slots.give_back(slot);
        self.len -= 1;
        self.refill();
        key
    }

    #[inline]
    fn rekey(&mut self, slot: u32, key: u64) {
        let at = self.slots.position(slot);
        if at < TREE && key > self.base {
            let old = self.buckets.key(at);
            let (from, to) = (level_of(old, self.base), level_of(key, self.base));
            if bucket_of(old, from) == bucket_of(key, to) {
                return self.buckets.set_key(at, key);
            }
        } else if (TREE..RUN).contains(&at) && key <= self.base {
            return self.tree.rekey(at, key, &mut self.slots);
        }
        self.withdraw(at);
        self.accept(Entry { key, slot });
        self.refill();
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        let at = self.slots.position(slot);
        if at >= RUN {
            self.run[(at & !RUN) as usize].key
        } else if at >= TREE {
            self.tree.key(at)
        } else {
            self.buckets.key(at)
        }
    }

    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        self.front().map(|(_, entry)| (entry.key, entry.slot))
    }

    #[inline]
    fn pop_due(&mut self, now: u64, mut soon: impl FnMut(u32)) -> Option<(u64, u32)> {
        let (from_run, entry) = self.front().filter(|(_, entry)| entry.key <= now)?;
        if from_run {
            self.head += 1;
            self.skip_holes();
            if let Some(next) = self.run.get(self.head + SOON) {
                if next.slot != VACANT {
                    soon(next.slot);
                }
            }
        } else {
            self.tree.pop(&mut self.slots, &mut soon);
        }
        self.slots.give_back(entry.slot);
        self.len -= 1;
        if self.levels != 0 && self.front_is_empty() {
            self.bring_forward();
            // None, if the bucket went to the tree: what is left of the run before is no entries.
            let next = self.run.iter().skip(self.head).take(SOON + 1);
            next.for_each(|entry| soon(entry.slot));
        }
        Some((entry.key, entry.slot))
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests;
