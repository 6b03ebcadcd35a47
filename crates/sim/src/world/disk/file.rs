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
}

#[derive(Default)]
pub(super) struct File {
    /// What is read.
    now: Contents,
    /// What is on the disk.
    safe: Contents,
    /// The sectors that were written and not synced since. The system may write them at any time.
    dirty: BTreeSet<u64>,
    /// The number of the last sync that has begun, and of the last one that has ended.
    begun: u64,
    ended: u64,
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

    /// Returns how many more bytes of the disk it takes after a write.
    pub(super) fn would_take(&self, at: u64, len: usize) -> u64 {
        let new = sectors_of(at, len).filter(|number| !self.now.sectors.contains_key(number));
        new.count() as u64 * SECTOR as u64
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

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        for (number, place, from) in pieces(at, bytes.len()) {
            let sector = self.now.sectors.entry(number).or_insert([0; SECTOR]);
            sector[from..from + place.len()].copy_from_slice(&bytes[place]);
            self.dirty.insert(number);
        }
        if !bytes.is_empty() {
            self.now.len = self.now.len.max(at + bytes.len() as u64);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let kept = len.div_ceil(SECTOR as u64);
        self.dirty.extend(self.now.sectors.split_off(&kept).keys());
        // What lies behind the end is read as zeros if the file grows again.
        let last = len / SECTOR as u64;
        if let Some(sector) = self.now.sectors.get_mut(&last) {
            sector[(len % SECTOR as u64) as usize..].fill(0);
            self.dirty.insert(last);
        }
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
    pub(super) fn end_sync(&mut self, sync: Sync, fails: bool) {
        for (number, sector) in &sync.sectors {
            if self.now.sectors.get(number).copied() == *sector {
                self.dirty.remove(number);
            }
        }
        // A later one that has ended already had all that this one has.
        if fails || sync.number < self.ended {
            return;
        }
        self.ended = sync.number;
        for (number, sector) in sync.sectors {
            self.safe.set(number, sector);
        }
        self.safe.len = sync.len;
    }

    /// Leaves what a crash leaves: of what is dirty, nothing, all, or some sectors. Returns whether
    /// something is lost.
    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng) -> bool {
        let (mut is_lost, luck) = (false, rng.u8(..4));
        for number in std::mem::take(&mut self.dirty) {
            let was_written = luck == 0 || luck > 1 && rng.bool();
            match was_written {
                true => {
                    let sector = self.now.sectors.get(&number).copied();
                    self.safe.set(number, sector);
                }
                false => is_lost = true,
            }
        }
        if self.safe.len != self.now.len {
            match luck == 0 || luck > 1 && rng.bool() {
                true => self.safe.len = self.now.len,
                false => is_lost = true,
            }
        }
        let kept = self.safe.len;
        self.now = self.safe.clone();
        // Sectors behind the end belong to no file.
        self.set_len(kept);
        self.dirty.clear();
        self.safe = self.now.clone();
        is_lost
    }
}

fn sectors_of(at: u64, len: usize) -> std::ops::Range<u64> {
    let end = at + len as u64;
    at / SECTOR as u64..end.div_ceil(SECTOR as u64)
}

/// Divides a range of a file by its sectors. For each: its number, the part of the range, and where
/// in the sector that begins.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let range = if len == 0 { 0..0 } else { sectors_of(at, len) };
    range.map(move |number| {
        let begin = number * SECTOR as u64;
        let first = begin.max(at);
        let end = (begin + SECTOR as u64).min(at + len as u64);
        let place = (first - at) as usize..(end - at) as usize;
        (number, place, (first - begin) as usize)
    })
}
