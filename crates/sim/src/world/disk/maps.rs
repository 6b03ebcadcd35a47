//! Files of the disks in memory.
//!
//! A program changes a map without a call, so nobody learns when. The pages are compared with the
//! file before each look at it: what differs was written by the program, and counts as written at
//! that moment. What a program writes by a call goes to the pages at once, as on Linux.

use std::collections::btree_map::Entry;

use super::{Inode, Kind, Volume};
use crate::{
    calls::Pages,
    world::{State, World, net::Errno},
};

/// How many bytes are compared at a time.
const PART: usize = 512;

/// A map of a part of a file.
pub(super) struct Map {
    inode: Inode,
    at: u64,
    address: usize,
    len: usize,
    /// What a program writes to it comes to the file.
    is_shared: bool,
}

impl Map {
    /// Returns what is left of it before and behind a piece of memory that is unmapped.
    fn without(&self, address: usize, len: usize) -> impl Iterator<Item = Self> {
        let (begin, end) = (self.address, self.address + self.len);
        let parts = [(begin, address), (address.saturating_add(len), end)];
        parts.into_iter().filter_map(move |(from, to)| {
            let (from, to) = (from.max(begin), to.min(end));
            (from < to).then(|| Self {
                inode: self.inode,
                at: self.at + (from - begin) as u64,
                address: from,
                len: to - from,
                is_shared: self.is_shared,
            })
        })
    }

    fn meets(&self, address: usize, len: usize) -> bool {
        self.address < address.saturating_add(len) && address < self.address + self.len
    }
}

impl Volume {
    /// Writes to a file what a program has changed in its maps.
    pub(crate) fn read_maps(&mut self, inode: Inode, now: u64) {
        let Some(pages) = self.pages.get(&inode) else {
            return;
        };
        let Ok(file) = self.file(inode) else {
            return;
        };
        let mut changes = Vec::new();
        let maps = self.maps.iter().filter(|map| map.is_shared);
        for map in maps.filter(|map| map.inode == inode) {
            let end = file.len().min(map.at + map.len as u64);
            for at in (map.at..end).step_by(PART) {
                let mut has = [0; PART];
                let has = &mut has[..PART.min((end - at) as usize)];
                file.read(at, has);
                let is = &pages.bytes()[at as usize..][..has.len()];
                if has != is {
                    changes.push((at, is.to_vec()));
                }
            }
        }
        for (at, bytes) in changes {
            self.write(inode, at, &bytes);
            self.node_mut(inode).modified = now;
        }
    }

    /// Does the same with all files.
    pub(super) fn read_all_maps(&mut self, now: u64) {
        for inode in self.pages.keys().copied().collect::<Vec<_>>() {
            self.read_maps(inode, now);
        }
    }

    /// A program has written to a file.
    pub(super) fn write_maps(&mut self, inode: Inode, at: u64, bytes: &[u8]) {
        if let Some(pages) = self.pages.get_mut(&inode) {
            pages.write(at, bytes);
        }
    }

    /// A program makes a file end there, or changes it so that it no longer does: what was written to
    /// the pages behind its end is gone.
    pub(super) fn cut_maps(&mut self, inode: Inode, len: u64) {
        if let Some(pages) = self.pages.get_mut(&inode) {
            pages.cut(len);
        }
    }

    /// The programs of the host are gone, and their maps with them.
    pub(super) fn end_life(&mut self) {
        self.maps.clear();
        self.pages.clear();
        self.device[0] += 1;
    }
}

impl State {
    /// Returns the descriptor of the pages of a file that a program wants to map up to there.
    /// `writes`: it wants to write there.
    pub(crate) fn pages(&mut self, fd: i32, end: usize, writes: bool) -> Result<i32, Errno> {
        match self.flags(fd)? & libc::O_ACCMODE {
            libc::O_WRONLY => return Err(libc::EACCES),
            libc::O_RDONLY if writes => return Err(libc::EACCES),
            _ => {}
        }
        self.on_open(fd, |disk, inode, _| {
            let file = match disk.nodes.get(&inode).map(|node| &node.kind) {
                Some(Kind::File(file)) => file,
                _ => return Err(libc::ENODEV),
            };
            let pages = match disk.pages.entry(inode) {
                Entry::Occupied(pages) => pages.into_mut(),
                Entry::Vacant(new) => new.insert(Pages::new()?),
            };
            let had = pages.bytes().len() as u64;
            pages.grow(end)?;
            file.each_sector(had, |at, bytes| pages.write(at, bytes));
            Ok(pages.fd)
        })
    }

    /// A program has mapped these pages of a file.
    pub(crate) fn map(
        &mut self,
        fd: i32,
        at: u64,
        address: usize,
        len: usize,
        is_shared: bool,
    ) -> Result<(), Errno> {
        self.on_open(fd, |disk, inode, _| {
            disk.maps.push(Map {
                inode,
                at,
                address,
                len,
                is_shared,
            });
            Ok(())
        })
    }

    /// Drops the pages of which the calling thread's host has no maps.
    pub(crate) fn forget_pages(&mut self) {
        if let Some(disk) = self.volume() {
            let maps = &disk.maps;
            disk.pages
                .retain(|inode, _| maps.iter().any(|map| map.inode == *inode));
        }
    }

    /// A program of the calling thread's host unmaps a piece of memory. Returns how many maps are
    /// gone, and how many parts of maps are left.
    pub(crate) fn unmap(&mut self, address: usize, len: usize) -> (usize, usize) {
        // Nearly all memory is of no file.
        let meets = |map: &Map| map.meets(address, len);
        if !self
            .volume()
            .is_some_and(|disk| disk.maps.iter().any(meets))
        {
            return (0, 0);
        }
        let unmapped = self.on_disk(|disk, now| {
            let (gone, mut left): (Vec<_>, Vec<_>) =
                std::mem::take(&mut disk.maps).into_iter().partition(meets);
            let parts = gone.iter().flat_map(|map| map.without(address, len));
            let parts: Vec<_> = parts.collect();
            let counts = (gone.len(), parts.len());
            // The pages are still there.
            disk.maps = gone;
            disk.read_all_maps(now);
            left.extend(parts);
            disk.maps = left;
            Ok(counts)
        });
        self.forget_pages();
        unmapped.unwrap_or_default()
    }

    /// Returns the files of which the calling thread's host has maps there.
    pub(crate) fn mapped_files(&mut self, address: usize, len: usize) -> Vec<Inode> {
        let disk = self.volume();
        let maps = disk.into_iter().flat_map(|disk| &disk.maps);
        let mut files: Vec<_> = maps
            .filter(|map| map.meets(address, len))
            .map(|map| map.inode)
            .collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

impl World {
    /// Writes to the disk a file that the calling thread's host has mapped.
    pub(crate) fn sync_map(&self, file: Inode) -> Result<(), Errno> {
        let host = self.lock().host();
        self.sync(host, |disk| vec![disk.begin_sync(file)])
    }
}
