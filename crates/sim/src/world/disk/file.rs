//! The contents of a file: those that are read, and those that a crash leaves.

use std::collections::{BTreeMap, BTreeSet};

/// How many bytes a disk writes in one piece. A crash may leave some sectors of a longer write.
const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

#[derive(Clone, Default)]
struct Contents {
    /// A sector that is not here has zeros.
    sectors: BTreeMap<u64, Sector>,
    len: u64,
}

impl Contents {
    fn set(&mut self, number: u64, sector: Option<Sector>) {
        match sector {
            Some(sector) => _ = self.sectors.insert(number, sector),
            None => _ = self.sectors.remove(&number),
        }
    }

    /// Leaves nothing behind this length, so that zeros are read there. Returns the sectors that
    /// change.
    fn cut(&mut self, len: u64) -> BTreeSet<u64> {
        let gone = self.sectors.split_off(&len.div_ceil(SECTOR as u64));
        let mut changed: BTreeSet<u64> = gone.into_keys().collect();
        let last = len / SECTOR as u64;
        if let Some(sector) = self.sectors.get_mut(&last) {
            sector[(len % SECTOR as u64) as usize..].fill(0);
            changed.insert(last);
        }
        changed
    }
}

#[derive(Default)]
pub(super) struct File {
    /// What is read.
    now: Contents,
    /// What is on the disk.
    safe: Contents,
    /// The sectors that were written and not synced since. The system may write them at any time.
    dirty: BTreeSet<u64>,
    /// The lengths to which it was made shorter, and that were not synced since: for each number
    /// of the last sync that had begun, the least one.
    cuts: BTreeMap<u64, u64>,
    /// The number of the last sync that has begun, and of the last one that succeeded.
    begun: u64,
    ended: u64,
    /// How many syncs have failed.
    pub(super) errors: u64,
}

/// What a sync writes: the contents of the moment at which it began.
pub(crate) struct Sync {
    number: u64,
    sectors: Vec<(u64, Option<Sector>)>,
    len: u64,
}

impl File {
    pub(super) fn len(&self) -> u64 {
        self.now.len
    }

    /// Returns how many bytes of the disk it takes.
    pub(super) fn takes(&self) -> u64 {
        (self.now.sectors.len() * SECTOR) as u64
    }

    /// Returns how many of the bytes that a program writes there fit into this much room.
    pub(super) fn fitting(&self, at: u64, len: usize, room: u64) -> usize {
        let mut left = room / SECTOR as u64;
        for (number, place, _) in pieces(at, len) {
            if !self.now.sectors.contains_key(&number) {
                if left == 0 {
                    return place.start;
                }
                left -= 1;
            }
        }
        len
    }

    /// Reads what there is from an offset on, and returns how many bytes.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> usize {
        let rest = self.now.len.saturating_sub(at);
        let len = buffer
            .len()
            .min(usize::try_from(rest).unwrap_or(usize::MAX));
        for (number, place, from) in pieces(at, len) {
            let part = &mut buffer[place.clone()];
            match self.now.sectors.get(&number) {
                Some(sector) => part.copy_from_slice(&sector[from..from + place.len()]),
                None => part.fill(0),
            }
        }
        len
    }

    /// Calls `f` with each sector that has bytes from there on.
    pub(super) fn each_sector(&self, from: u64, mut f: impl FnMut(u64, &[u8])) {
        for (number, sector) in self.now.sectors.range(from / SECTOR as u64..) {
            f(number * SECTOR as u64, sector);
        }
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8], rng: &mut fastrand::Rng) {
        self.write_back(rng);
        for (number, place, from) in pieces(at, bytes.len()) {
            let sector = self.now.sectors.entry(number).or_insert([0; SECTOR]);
            sector[from..from + place.len()].copy_from_slice(&bytes[place]);
            self.dirty.insert(number);
        }
        if !bytes.is_empty() {
            self.now.len = self.now.len.max(at + bytes.len() as u64);
        }
    }

    /// At times, writes a sector to the disk as it is now, as the system does at any time.
    fn write_back(&mut self, rng: &mut fastrand::Rng) {
        if self.dirty.is_empty() || !self.cuts.is_empty() || rng.u8(..8) > 0 {
            return;
        }
        let which = rng.usize(..self.dirty.len());
        if let Some(number) = self.dirty.iter().nth(which) {
            let sector = self.now.sectors.get(number).copied();
            self.safe.set(*number, sector);
        }
        if rng.bool() {
            // It was not made shorter, so this is at least the length on the disk.
            self.safe.len = self.now.len;
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.now.len {
            let least = self.cuts.entry(self.begun).or_insert(len);
            *least = len.min(*least);
        }
        self.dirty.extend(self.now.cut(len));
        self.now.len = len;
    }

    /// Begins to write to the disk what is dirty.
    pub(super) fn begin_sync(&mut self) -> Sync {
        self.begun += 1;
        let sectors = self.dirty.iter();
        Sync {
            number: self.begun,
            sectors: sectors
                .map(|number| (*number, self.now.sectors.get(number).copied()))
                .collect(),
            len: self.now.len,
        }
    }

    /// Ends a sync. What has changed meanwhile stays dirty.
    pub(super) fn end_sync(&mut self, sync: Sync, fails: bool, rng: &mut fastrand::Rng) {
        // A later one that has succeeded had all that this one has.
        if sync.number < self.ended {
            self.errors += u64::from(fails);
            return;
        }
        for (number, sector) in &sync.sectors {
            if self.now.sectors.get(number).copied() == *sector {
                self.dirty.remove(number);
            }
        }
        if fails {
            self.errors += 1;
            // Nobody knows what the disk has written.
            if self.cuts.is_empty() {
                let written = sync.sectors.into_iter().filter(|_| rng.bool());
                written.for_each(|(number, sector)| self.safe.set(number, sector));
            }
            return;
        }
        self.ended = sync.number;
        // An earlier sync that failed may have left the sectors behind a cut.
        let later = self.cuts.split_off(&sync.number);
        let cuts = std::mem::replace(&mut self.cuts, later);
        if let Some(len) = cuts.into_values().min() {
            self.safe.cut(len);
        }
        for (number, sector) in sync.sectors {
            self.safe.set(number, sector);
        }
        self.safe.cut(sync.len);
        self.safe.len = sync.len;
    }

    /// Leaves what a crash leaves, or all. Returns whether something is lost.
    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng, loses: bool) -> bool {
        // Of some files all is written, of some nothing, of others some sectors.
        let luck = if loses { rng.u8(..4) } else { 0 };
        let mut comes = || luck == 0 || luck > 1 && rng.bool();
        let (dirty, before) = (std::mem::take(&mut self.dirty), self.safe.len);
        let mut is_lost = false;
        // What lies behind the cut is of another time, so it comes after the cut alone.
        let mut first_kept = u64::MAX;
        if let Some(len) = std::mem::take(&mut self.cuts).into_values().min() {
            if comes() {
                self.safe.cut(len);
                self.safe.len = before.min(len);
            } else {
                is_lost = true;
                first_kept = len / SECTOR as u64;
            }
        }
        for number in dirty.into_iter().filter(|number| *number < first_kept) {
            match comes() {
                true => {
                    let sector = self.now.sectors.get(&number).copied();
                    self.safe.set(number, sector);
                }
                false => is_lost = true,
            }
        }
        if first_kept == u64::MAX && self.safe.len < self.now.len {
            let new = self.now.len;
            let some = self.safe.len..new;
            self.safe.len = match comes() {
                true if luck == 0 || rng.bool() => new,
                // The end is within what was written.
                true => rng.u64(some).next_multiple_of(SECTOR as u64).min(new),
                false => self.safe.len,
            };
            is_lost |= self.safe.len < new;
        }
        let len = self.safe.len;
        self.safe.cut(len);
        self.now = self.safe.clone();
        is_lost
    }
}

/// Divides a range of a file by its sectors. For each: its number, the part of the range, and where
/// in the sector that begins.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let end = (at + len as u64).div_ceil(SECTOR as u64);
    let range = if len == 0 {
        0..0
    } else {
        at / SECTOR as u64..end
    };
    range.map(move |number| {
        let begin = number * SECTOR as u64;
        let first = begin.max(at);
        let end = (begin + SECTOR as u64).min(at + len as u64);
        let place = (first - at) as usize..(end - at) as usize;
        (number, place, (first - begin) as usize)
    })
}
