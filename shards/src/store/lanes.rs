//! Lanes: runs of ascending keys, over a heap.
//!
//! The timers of a server wait for one of a few durations, so that those of each duration arrive in the
//! order of their deadlines. A store knows nothing of durations. It puts each key into the lane whose last
//! key is the largest of those that are not larger, as patience sorting does (Aldous and Diaconis,
//! "Longest increasing subsequences", 1999): as many lanes then do as there are durations. What fits
//! nowhere is a stray, and goes to a heap.
//!
//! A few timers far ahead would keep a lane each for as long as they wait. So where keys fit nowhere, and all
//! lanes are taken, the shortest goes to the heap now and then, if it is a few entries, and makes room for
//! such a key. An entry goes from a lane to the heap at most once, unless it is moved.

use std::{cmp::Reverse, collections::VecDeque};

use super::{
    Entry, Store,
    slots::{Slots, VACANT},
    tree::Tree,
};

/// The number of lanes at most.
const LANES: usize = 15;

/// In a position: this bit, the number of the lane, the number of the entry in it. Without the bit it is
/// a position in the heap. (There is no lane 15, so that none is `VACANT`.)
const LANE: u32 = 1 << 31;
const NUMBER: u32 = 27;
const NUMBERS: u32 = (1 << NUMBER) - 1;

/// The largest slot.
const MAX_SLOT: u32 = (1 << 29) - 1;

/// So many holes are let be in any lane.
const HOLES: usize = 32;

/// So few entries do not keep a lane that others need: there will not be many of that duration.
const FEW: usize = 8;

/// Each time that so many keys fit nowhere it is looked for such a lane: a look costs as much as an insertion.
const PATIENCE: u32 = 16;

/// How far ahead of their turn the entries of a lane are named.
const SOON: usize = 8;

/// The store for timers that wait for one of a few durations: up to 15 lanes, over a heap.
///
/// Where the keys of each duration are inserted in their order, or nearly, all is O(1) but for a look at
/// the ends of the lanes in use, which are as many as there are durations. Keys of any other kind go to
/// the heap, and cost what they cost there, and that look.
///
/// What is removed from the middle of a lane leaves a hole. Holes at the ends are taken away at once, and
/// a lane that has more than 32 of them, and more than entries, is compacted: so there are at most as
/// many holes as entries, and 480. 16 bytes an entry and 12 a hole, in arrays that may be a half empty
/// as they grow, and three quarters as they shrink. Holds up to 2^29 entries.
///
/// ```
/// use tourbillon_shards::store::{Lanes, Store};
///
/// let mut lanes = Lanes::new();
/// for now in [0, 1, 2] {
///     // Two durations.
///     lanes.insert(now + 100);
///     lanes.insert(now + 5);
/// }
/// let keys = std::iter::from_fn(|| lanes.pop_due(u64::MAX, |_| ())).map(|(key, _)| key);
/// assert!(keys.eq([5, 6, 7, 100, 101, 102]));
/// ```
#[derive(Debug)]
pub struct Lanes {
    slots: Slots,
    len: usize,
    lanes: Vec<Lane>,
    /// The first key of each lane; `u64::MAX`, which no lane takes, if it is empty.
    heads: [u64; LANES],
    /// The last key of each lane; 0, after which anything fits, if it is empty.
    tails: [u64; LANES],
    /// The lane with the smallest head.
    least: usize,
    strays: Tree,
    /// How many keys fitted nowhere; wraps around.
    misfits: u32,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            slots: Slots::default(),
            len: 0,
            lanes: Vec::new(),
            heads: [u64::MAX; LANES],
            tails: [0; LANES],
            least: 0,
            strays: Tree::default(),
            misfits: 0,
        }
    }
}

/// A run of ascending keys. Neither the first nor the last entry is a hole.
#[derive(Debug, Default)]
struct Lane {
    entries: VecDeque<Entry>,
    /// The number of the first entry; numbers wrap around.
    first: u32,
    holes: usize,
}

impl Lane {
    fn index(&self, number: u32) -> usize {
        (number.wrapping_sub(self.first) & NUMBERS) as usize
    }

    /// The number of an entry, by its index.
    fn number(&self, index: usize) -> u32 {
        self.first.wrapping_add(index as u32) & NUMBERS
    }

    /// How many entries there are, but for the holes.
    fn live(&self) -> usize {
        self.entries.len() - self.holes
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= NUMBERS as usize
    }

    /// Takes away the holes at both ends.
    fn trim(&mut self) {
        while self.entries.back().is_some_and(|it| it.slot == VACANT) {
            self.entries.pop_back();
            self.holes -= 1;
        }
        while self.entries.front().is_some_and(|it| it.slot == VACANT) {
            self.pop_front();
            self.holes -= 1;
        }
        let capacity = self.entries.capacity();
        if capacity > 256 && self.entries.len() < capacity / 4 {
            self.shrink();
        }
    }

    /// Gives back half of the memory, again and again, until a quarter is in use.
    #[cold]
    fn shrink(&mut self) {
        let mut room = self.entries.capacity();
        while room > 256 && self.entries.len() < room / 4 {
            room /= 2;
        }
        self.entries.shrink_to(room);
    }

    /// Whether there are more holes than the store wants to keep.
    #[inline]
    fn is_hollow(&self) -> bool {
        self.holes > HOLES && self.holes * 2 > self.entries.len()
    }

    fn pop_front(&mut self) {
        self.entries.pop_front();
        self.first = self.number(1);
    }

    /// Makes a hole of an entry, and answers its key.
    fn cut(&mut self, number: u32) -> u64 {
        let index = self.index(number);
        let entry = &mut self.entries[index];
        entry.slot = VACANT;
        let key = entry.key;
        self.holes += 1;
        self.trim();
        key
    }
}

fn position(lane: usize, number: u32) -> u32 {
    LANE | (lane as u32) << NUMBER | number
}

/// The lane and the number of a position that is in a lane.
fn in_lane(at: u32) -> (usize, u32) {
    (((at & !LANE) >> NUMBER) as usize, at & NUMBERS)
}

impl Lanes {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lane at whose end a key should be put, if there is one. Strays may have other positions then.
    #[inline]
    fn fit(&mut self, key: u64) -> Option<usize> {
        // An empty lane would be taken for one that has this key.
        if key == u64::MAX {
            return None;
        }
        let mut best = None;
        let mut most = 0;
        for (lane, &tail) in self.tails[..self.lanes.len()].iter().enumerate() {
            if tail <= key && tail >= most {
                (best, most) = (Some(lane), tail);
            }
        }
        if best.is_none() && self.lanes.len() < LANES {
            self.lanes.push(Lane::default());
            best = Some(self.lanes.len() - 1);
        }
        if best.is_none() {
            self.misfits = self.misfits.wrapping_add(1);
            if self.misfits % PATIENCE == 0 {
                best = self.free_lane();
            }
        }
        best.filter(|&lane| !self.lanes[lane].is_full())
    }

    /// Moves the shortest lane to the heap, if it is short, and answers which it is.
    #[cold]
    fn free_lane(&mut self) -> Option<usize> {
        // Of those that are as short, the one that is furthest ahead keeps its lane for longest.
        let lanes = self.lanes.iter().zip(&self.tails).enumerate();
        let (lane, _) = lanes.min_by_key(|(_, (run, tail))| (run.live(), Reverse(**tail)))?;
        if self.lanes[lane].live() > FEW {
            return None;
        }
        let run = &mut self.lanes[lane];
        for entry in run.entries.drain(..).filter(|it| it.slot != VACANT) {
            self.strays.push(entry, &mut self.slots);
        }
        run.holes = 0;
        run.trim();
        self.note_ends(lane);
        Some(lane)
    }

    fn append(&mut self, lane: usize, entry: Entry) {
        let run = &mut self.lanes[lane];
        let number = run.number(run.entries.len());
        run.entries.push_back(entry);
        self.slots.set(entry.slot, position(lane, number));
        self.tails[lane] = entry.key;
        if run.entries.len() == 1 {
            self.heads[lane] = entry.key;
            if entry.key < self.heads[self.least] {
                self.least = lane;
            }
        }
    }

    fn place(&mut self, entry: Entry) {
        match self.fit(entry.key) {
            Some(lane) => self.append(lane, entry),
            None => self.strays.push(entry, &mut self.slots),
        }
    }

    /// Takes an entry out of where it is.
    #[inline]
    fn withdraw(&mut self, at: u32) -> u64 {
        if at < LANE {
            return self.strays.remove(at, &mut self.slots);
        }
        let (lane, number) = in_lane(at);
        let run = &mut self.lanes[lane];
        let key = run.cut(number);
        if run.is_hollow() {
            self.compact(lane);
        }
        self.note_ends(lane);
        key
    }

    /// Takes all holes out of a lane.
    #[cold]
    fn compact(&mut self, lane: usize) {
        let run = &mut self.lanes[lane];
        run.entries.retain(|entry| entry.slot != VACANT);
        run.holes = 0;
        for (index, entry) in run.entries.iter().enumerate() {
            let at = position(lane, run.number(index));
            self.slots.set(entry.slot, at);
        }
        run.trim();
    }

    /// Writes down the ends of a lane from which something was taken.
    #[inline]
    fn note_ends(&mut self, lane: usize) {
        let run = &self.lanes[lane];
        let (head, tail) = match (run.entries.front(), run.entries.back()) {
            (Some(head), Some(tail)) => (head.key, tail.key),
            _ => (u64::MAX, 0),
        };
        self.tails[lane] = tail;
        if head != self.heads[lane] {
            self.heads[lane] = head;
            if lane == self.least {
                let heads = self.heads[..self.lanes.len()].iter().enumerate();
                self.least = heads.min_by_key(|head| head.1).map_or(0, |head| head.0);
            }
        }
    }

    /// The lane of the first entry, if it is in one, and the entry.
    #[inline]
    fn front(&self) -> Option<(Option<usize>, Entry)> {
        let head = self.heads[self.least];
        let stray = self.strays.first();
        if head == u64::MAX || stray.is_some_and(|stray| stray.key < head) {
            return stray.map(|stray| (None, stray));
        }
        let first = self.lanes[self.least].entries.front()?;
        Some((Some(self.least), *first))
    }
}

impl Store for Lanes {
    fn insert(&mut self, key: u64) -> u32 {
        let slot = self.slots.take(MAX_SLOT);
        self.place(Entry { key, slot });
        self.len += 1;
        slot
    }

    fn remove(&mut self, slot: u32) -> u64 {
        let at = self.slots.position(slot);
        let key = self.withdraw(at);
        self.slots.give_back(slot);
        self.len -= 1;
        key
    }

    fn rekey(&mut self, slot: u32, key: u64) {
        let at = self.slots.position(slot);
        if at < LANE {
            match self.fit(key) {
                Some(lane) => {
                    let at = self.slots.position(slot);
                    self.strays.remove(at, &mut self.slots);
                    self.append(lane, Entry { key, slot });
                }
                None => self.strays.rekey(at, key, &mut self.slots),
            }
        } else {
            self.withdraw(at);
            self.place(Entry { key, slot });
        }
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        let at = self.slots.position(slot);
        if at < LANE {
            return self.strays.key(at);
        }
        let (lane, number) = in_lane(at);
        let run = &self.lanes[lane];
        run.entries[run.index(number)].key
    }

    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        self.front().map(|(_, entry)| (entry.key, entry.slot))
    }

    #[inline]
    fn first_key(&self) -> u64 {
        // A lane that is empty has the largest for its head.
        let stray = self.strays.first().map_or(u64::MAX, |stray| stray.key);
        self.heads[self.least].min(stray)
    }

    #[inline]
    fn pop_due(&mut self, now: u64, mut soon: impl FnMut(u32)) -> Option<(u64, u32)> {
        let (lane, entry) = self.front().filter(|(_, entry)| entry.key <= now)?;
        match lane {
            None => {
                self.strays.pop(&mut self.slots, soon);
            }
            Some(lane) => {
                let run = &mut self.lanes[lane];
                run.pop_front();
                run.trim();
                if let Some(next) = run.entries.get(SOON).filter(|it| it.slot != VACANT) {
                    soon(next.slot);
                }
                if run.is_hollow() {
                    self.compact(lane);
                }
                self.note_ends(lane);
            }
        }
        self.slots.give_back(entry.slot);
        self.len -= 1;
        Some((entry.key, entry.slot))
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests;
