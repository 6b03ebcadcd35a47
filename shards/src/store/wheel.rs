//! A lazy hierarchical wheel with exact keys: no tick, and no bound.
//!
//! The hierarchy is that of Varghese and Lauck ("Hashed and hierarchical timing wheels", 1987), without
//! a hand that moves: as in a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the
//! shortest path problem", 1990) the level of a key is that of the highest digit in which it differs
//! from `base`, so that eleven levels of 64 buckets cover all 64 bits. Where a bucket gets long it is split
//! as those of a ladder queue are (Tang, Goh and Thng, 2005), but when it is filled, and not when it is due.
//!
//! - A table has the key of each slot, and is all that is true. Removing writes there; moving does, and adds an
//!   entry where the new key belongs. The old one is stale, and nobody looks for it.
//! - All keys up to `base` are in the *front*, all others in the buckets, which have nothing but slots. The
//!   first of the front is known, and live: so the first key is known at any moment, without a search.
//! - When the front has run out, the first bucket comes forward. A small one is sorted, and is the front's
//!   *run*. A larger one is dealt out to the levels below it.
//! - What is inserted up to `base`, among it what is overdue, goes to a heap, which is the front's other
//!   half. Where there are few, all are in it. If it gets large, `base` goes back to the first key.
//! - The keys of many are in no cache. Who makes one earlier, and not the first, leaves a note, and has the key fetched;
//!   some notes later all of these are seen to, which wait for memory together.
//! - When there is more that is stale than live, whoever makes more sweeps a few buckets.

use std::collections::BTreeSet;

use self::levels::Levels;
use super::{
    Entry, Store,
    keys::{FREE, Keys},
    slots::VACANT,
    tree::{Nowhere, Tree},
};

mod levels;
mod quickly;

/// A bucket of so many entries is sorted in place of being dealt out.
const SORTED: usize = if cfg!(test) { 16 } else { 512 };

/// The front's heap may have so many entries before `base` goes back.
const CROWD: usize = if cfg!(test) { 12 } else { 512 };

/// So much may be stale, however little is live.
const STALE: usize = 64;

/// At least so many entries are looked at when something is swept.
const SWEPT: usize = 64;

/// For so many looks of a sweep one entry may get stale before the next.
const LOOKS: usize = 4;

/// So many moves to earlier keys are put off, and made together.
const LOWERED: usize = 16;

/// With so many slots the table of their keys is not in the nearest cache any more.
const FAR: usize = if cfg!(loom) {
    1
} else if cfg!(test) {
    8
} else {
    4_096
};

/// So many slots are worth to begin anew, when none is held any more. It takes as long as some ten insertions.
const ANEW: usize = if cfg!(test) { 24 } else { 1_024 };

/// How far ahead of their turn the entries of a run are named.
const SOON: usize = 16;

/// The largest slot.
const MAX_SLOT: u32 = (1 << 29) - 1;

const NOBODY: Entry = Entry {
    key: u64::MAX,
    slot: VACANT,
};

/// The store for very many timers, of any distribution: a lazy hierarchical wheel.
///
/// Inserting, removing and moving touch about one cold place each. An entry is moved once for each level that
/// it passes, few of them more than two, and sorted among some hundreds. All cost about the same however many
/// there are, but not each time: whoever takes out the last entry of the front pays for the next bucket, and some
/// of those who remove or move for a look at one. A bucket has 8,192 entries at most, unless their keys are equal.
/// Keys are exact, and any key will do at any time.
///
/// 12 bytes an entry, 4 more for each that was removed or moved, of which there are about as many as entries at
/// most, and some that depend on how they are spread: a cache line for each bucket in use. Nothing
/// shrinks, but a [shard gives up](crate::Shard::shrink) a store that is too large; 4 bytes for
/// each free slot. Holds up to 2^29 entries.
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
    /// The first entry; `NOBODY` if there is none.
    first: Entry,
    len: usize,
    keys: Keys,
    /// What came up to `base`.
    tree: Tree,
    /// How large `tree` may get before it is looked whether `base` should go back.
    crowd: usize,
    /// The bucket that came forward, sorted.
    run: Vec<Entry>,
    /// How many of `run` are over.
    head: usize,
    levels: Levels,
    /// How many may get stale before it is looked how many are; not 0.
    patience: usize,
    /// The first `noted` are moves that were put off, in their order: each to a key that is not before the first, nor was
    /// to be made if it is not earlier than that of its slot.
    lowered: [Entry; LOWERED],
    noted: usize,
    /// Those whose key is `FREE`, which the table cannot tell from free slots.
    last: BTreeSet<u32>,
    /// How often an entry was moved on, or back.
    #[cfg(test)]
    moves: usize,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            first: NOBODY,
            len: 0,
            keys: Keys::default(),
            tree: Tree::default(),
            crowd: CROWD,
            run: Vec::new(),
            head: 0,
            levels: Levels::new(),
            patience: STALE,
            lowered: [NOBODY; LOWERED],
            noted: 0,
            last: BTreeSet::new(),
            #[cfg(test)]
            moves: 0,
        }
    }
}

impl Wheel {
    /// An empty wheel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry whose slot has its key already.
    #[inline]
    fn accept(&mut self, entry: Entry) {
        if entry.key > self.levels.base {
            // `FREE` is not above any base while there is none before it.
            if entry.key == FREE {
                return self.accept_last(entry.slot);
            }
            self.levels.push(entry, &mut self.keys);
        } else {
            self.accept_near(entry);
        }
    }

    #[inline]
    fn accept_near(&mut self, entry: Entry) {
        if entry.key == FREE {
            return self.accept_last(entry.slot);
        }
        self.tree.push(entry, &mut Nowhere);
        if entry.key < self.first.key {
            self.first = entry;
        }
        if self.tree.len() > self.crowd {
            self.disperse();
        }
    }

    #[cold]
    fn accept_last(&mut self, slot: u32) {
        self.last.insert(slot);
        if self.first.slot == VACANT {
            self.first = Entry { key: FREE, slot };
        }
    }

    /// Takes one of those out whose key is `FREE`.
    #[cold]
    fn withdraw_last(&mut self, slot: u32) {
        assert!(self.last.remove(&slot), "slot {slot} is not in the store");
    }

    /// Puts to the test that a slot is held whose key may be that of a free one.
    #[inline]
    fn held_key(&self, slot: u32) -> u64 {
        let key = self.keys.get(slot);
        if key == FREE {
            self.check_last(slot);
        }
        key
    }

    #[cold]
    fn check_last(&self, slot: u32) {
        let held = self.last.contains(&slot);
        assert!(held, "slot {slot} is not in the store");
    }

    /// Moves an entry whose key is `old`, which is another one.
    #[inline]
    fn relocate(&mut self, slot: u32, old: u64, key: u64) {
        if old == FREE {
            self.withdraw_last(slot);
        }
        self.keys.set(slot, key);
        let base = self.levels.base;
        if old > base
            && key > base
            && old != FREE
            && key != FREE
            && self.levels.are_together(old, key)
        {
            return;
        }
        self.accept(Entry { key, slot });
        if slot == self.first.slot && key != self.first.key {
            self.find_first();
        }
        self.note_stale();
    }

    /// Whoever takes out or moves by other means does this before.
    #[inline]
    fn settle(&mut self) {
        if self.noted > 0 {
            self.settle_lowered();
        }
    }

    /// Makes the moves that were put off.
    #[inline(never)]
    fn settle_lowered(&mut self) {
        for note in 0..std::mem::take(&mut self.noted) {
            let Entry { key, slot } = self.lowered[note];
            let old = self.held_key(slot);
            if key < old {
                self.relocate(slot, old, key);
            }
        }
    }

    /// Nothing is held any more. Slots that were given back in no order would be taken again in that order, by
    /// whoever comes next; and so would all be met that is found by them, without the processor reading ahead.
    #[cold]
    fn begin_anew(&mut self) {
        self.first = NOBODY;
        self.keys.clear();
        self.tree.clear();
        self.crowd = CROWD;
        self.run.clear();
        self.head = 0;
        self.levels.clear();
        self.patience = STALE;
    }

    /// Whether nothing is held, and [beginning anew](Wheel::begin_anew) is worth it.
    #[inline]
    fn is_spent(&self) -> bool {
        self.len == 0 && self.keys.len() >= ANEW
    }

    /// The same where nobody wants to know what comes next.
    #[inline(never)]
    fn find_first(&mut self) {
        self.advance(|_| ());
    }

    /// The first was removed, or moved: finds who is it now.
    #[inline]
    fn advance(&mut self, mut soon: impl FnMut(u32)) {
        loop {
            let mut run = NOBODY;
            while let Some(&entry) = self.run.get(self.head) {
                if self.keys.is_live(entry) {
                    run = entry;
                    break;
                }
                self.head += 1;
                if let Some(next) = self.run.get(self.head + SOON) {
                    soon(next.slot);
                }
            }
            let mut tree = NOBODY;
            while let Some(entry) = self.tree.first() {
                if self.keys.is_live(entry) {
                    tree = entry;
                    break;
                }
                self.tree.pop(&mut Nowhere, &mut soon);
            }
            self.first = if tree.key < run.key { tree } else { run };
            if self.first.slot != VACANT || !self.bring_forward() {
                return;
            }
            let next = self.run.iter().skip(self.head).take(SOON + 1);
            next.for_each(|entry| soon(entry.slot));
        }
    }

    /// Fills the front, which is empty, with what comes next; false if there is nothing but `last`.
    #[cold]
    fn bring_forward(&mut self) -> bool {
        self.run.clear();
        self.head = 0;
        while self.run.is_empty() && self.tree.len() == 0 {
            if self.levels.is_empty() {
                // Those that come are in the tree again, until they are many.
                self.levels.base = u64::MAX;
                self.crowd = CROWD;
                let slot = self.last.first().copied();
                self.first.slot = slot.unwrap_or(VACANT);
                return false;
            }
            let equal = self
                .levels
                .take_first(SORTED, &mut self.keys, &mut self.run);
            self.keys.restore(&self.run);
            self.note_moves(self.run.len());
            if equal || self.run.len() <= SORTED {
                if !equal {
                    self.run.sort_unstable_by_key(|entry| entry.key);
                }
                if let Some(last) = self.run.last() {
                    self.levels.base = last.key;
                }
            } else {
                self.deal_out();
            }
        }
        self.set_crowd();
        true
    }

    /// Places what is in the run, of which nothing is over.
    fn deal_out(&mut self) {
        self.note_moves(self.run.len());
        for entry in self.run.drain(..) {
            if entry.key > self.levels.base {
                self.levels.push(entry, &mut self.keys);
            } else {
                self.tree.push(entry, &mut Nowhere);
            }
        }
    }

    /// As many as are in the heap now have to come before any of them are moved: that pays for it.
    fn set_crowd(&mut self) {
        self.crowd = CROWD.max(2 * self.tree.len());
    }

    /// Takes `base` back to the first key, so that what has crowded into the front's heap goes to buckets.
    #[cold]
    fn disperse(&mut self) {
        if self.first.key < self.levels.base {
            self.sweep_front();
            let mut moved: Vec<Entry> = self.run.drain(..).skip(self.head).collect();
            self.head = 0;
            moved.extend_from_slice(self.tree.entries());
            self.tree.clear();
            self.levels.go_back(self.first.key);
            std::mem::swap(&mut self.run, &mut moved);
            self.deal_out();
        }
        self.set_crowd();
    }

    /// One more is stale.
    #[inline]
    fn note_stale(&mut self) {
        self.patience -= 1;
        if self.patience == 0 {
            self.look_around();
        }
    }

    /// How many entries there are that are not live.
    fn stale(&self) -> usize {
        let front = self.run.len() - self.head + self.tree.len();
        (front + self.levels.count + self.last.len()).saturating_sub(self.len)
    }

    /// Sweeps, if too many are stale, and says how many may get stale before the next look.
    #[cold]
    fn look_around(&mut self) {
        // After a peak, when room is there for more, that more may be stale saves some looks.
        let most = self.len + self.keys.len() / 4 + STALE;
        let stale = self.stale();
        // Each that is removed may be one more, and one less that are allowed.
        self.patience = match most.checked_sub(stale) {
            Some(left) => left / 2 + 1,
            None => self.sweep() / LOOKS + 1,
        };
    }

    /// Sweeps a few buckets, and the front in its turn, and answers how many entries were looked at.
    fn sweep(&mut self) -> usize {
        let (mut looks, round) = self.levels.sweep(SWEPT, &mut self.keys);
        if round {
            looks += self.run.len() - self.head + self.tree.len();
            self.sweep_front();
        }
        looks
    }

    /// Takes what is stale, or there twice, out of the front.
    fn sweep_front(&mut self) {
        self.run.drain(..self.head);
        self.head = 0;
        let keys = &mut self.keys;
        self.run.retain(|&entry| keys.collect_entry(entry));
        self.tree.retain(|&entry| keys.collect_entry(entry));
        keys.restore(&self.run);
        keys.restore(self.tree.entries());
    }

    /// For tests, which count.
    fn note_moves(&mut self, _count: usize) {
        #[cfg(test)]
        (self.moves += _count);
    }
}

impl Store for Wheel {
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = self.keys.take(key, MAX_SLOT);
        self.len += 1;
        self.accept(Entry { key, slot });
        slot
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> u64 {
        self.settle();
        let key = self.keys.get(slot);
        if key == FREE {
            self.withdraw_last(slot);
        }
        self.keys.give_back(slot);
        self.len -= 1;
        if slot == self.first.slot {
            if self.is_spent() {
                self.begin_anew();
                return key;
            }
            self.find_first();
        }
        self.note_stale();
        key
    }

    #[inline]
    fn rekey(&mut self, slot: u32, key: u64) {
        self.settle();
        let old = self.held_key(slot);
        if old != key {
            self.relocate(slot, old, key);
        }
    }

    #[inline]
    fn lower(&mut self, slot: u32, key: u64) {
        if key < self.first.key || !self.puts_off() {
            self.settle();
            let old = self.held_key(slot);
            if key < old {
                self.relocate(slot, old, key);
            }
            return;
        }
        self.keys.fetch(slot);
        self.lowered[self.noted] = Entry { key, slot };
        self.noted += 1;
        if self.noted == LOWERED {
            self.settle_lowered();
        }
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        let lowered = self.lowered[..self.noted]
            .iter()
            .filter(|it| it.slot == slot);
        let lowered = lowered.map(|it| it.key);
        lowered.fold(self.held_key(slot), u64::min)
    }

    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        let Entry { key, slot } = self.first;
        (slot != VACANT).then_some((key, slot))
    }

    #[inline]
    fn pop_due(&mut self, now: u64, soon: impl FnMut(u32)) -> Option<(u64, u32)> {
        let Entry { key, slot } = self.first;
        if key > now || slot == VACANT {
            return None;
        }
        self.settle();
        if key == FREE {
            self.withdraw_last(slot);
        }
        self.keys.give_back(slot);
        self.len -= 1;
        if self.is_spent() {
            self.begin_anew();
        } else {
            self.advance(soon);
        }
        Some((key, slot))
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn first_key(&self) -> u64 {
        self.first.key
    }
}

#[cfg(test)]
mod tests;
