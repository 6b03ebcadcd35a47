//! The open files of the hosts.

use std::collections::BTreeMap;

use super::{Attributes, File, Inode, Kind, Place, Sync, Volume};
use crate::world::{
    State, Wait, World,
    clocks::Clock,
    decide::Class,
    kernel::Object,
    net::Errno,
    story::{Part, Who},
};

/// The length that a file may have.
const LONGEST: u64 = i64::MAX as u64;

/// All open files. Several descriptors may be of one.
#[derive(Default)]
pub(crate) struct Files {
    open: BTreeMap<u64, OpenFile>,
    next: u64,
}

/// A description of an open file, as Linux calls it.
struct OpenFile {
    host: usize,
    inode: Inode,
    offset: u64,
    /// Those of `open` that stay.
    flags: i32,
    /// How many failed syncs of the file it has reported.
    errors: u64,
    /// How many descriptors it has.
    holders: usize,
    lock: Option<LockKind>,
}

/// The kinds of `flock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

/// The part of a file that a call reads or writes: from the file's offset on, or from this one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Range {
    Next,
    From(u64),
}

impl State {
    /// Returns the disk of the calling thread's host.
    pub(crate) fn volume(&mut self) -> Option<&mut Volume> {
        let host = self.host();
        self.hosts[host].disk.as_mut()
    }

    /// Calls `f` with the disk of the calling thread's host, and the time there.
    pub(crate) fn on_disk<T>(
        &mut self,
        f: impl FnOnce(&mut Volume, u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.on_disk_of(self.host(), f)
    }

    fn on_disk_of<T>(
        &mut self,
        host: usize,
        f: impl FnOnce(&mut Volume, u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let host = &mut self.hosts[host];
        let now = host.clocks.read(Clock::Wall, self.now);
        f(host.disk.as_mut().ok_or(libc::ENOENT)?, now)
    }

    /// Calls `f` with the disk and the number of an open file, and the time there.
    pub(crate) fn on_open<T>(
        &mut self,
        fd: i32,
        f: impl FnOnce(&mut Volume, Inode, u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let file = self.open_file(fd)?;
        let (host, inode) = (file.host, file.inode);
        self.on_disk_of(host, |disk, now| {
            disk.read_maps(inode, now);
            f(disk, inode, now)
        })
    }

    fn open_file(&self, fd: i32) -> Result<&OpenFile, Errno> {
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        self.files.open.get(&number).ok_or(libc::EBADF)
    }

    fn open_file_mut(&mut self, fd: i32) -> Result<&mut OpenFile, Errno> {
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        self.files.open.get_mut(&number).ok_or(libc::EBADF)
    }

    /// Returns the directory of a descriptor, if it is one of the calling thread's host.
    pub(crate) fn directory(&self, fd: i32) -> Option<Inode> {
        let file = self.open_file(fd).ok()?;
        (file.host == self.host()).then_some(file.inode)
    }

    /// Returns the flags with which a descriptor was opened.
    pub(crate) fn flags(&self, fd: i32) -> Result<i32, Errno> {
        self.open_file(fd).map(|file| file.flags)
    }

    /// Sets the flags of a descriptor that `fcntl` may set.
    pub(crate) fn set_flags(&mut self, fd: i32, flags: i32) -> Result<(), Errno> {
        let file = self.open_file_mut(fd)?;
        file.flags = file.flags & !libc::O_APPEND | flags & libc::O_APPEND;
        Ok(())
    }

    /// Opens a file of the calling thread's host.
    pub(crate) fn open(&mut self, place: &Place, flags: i32, mode: u32) -> Result<Object, Errno> {
        let (inode, errors) = self.on_disk(|disk, now| {
            let inode = disk.open(place, flags, mode, now)?;
            let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
            if flags & libc::O_TRUNC != 0 && writes {
                disk.resize(inode, 0, now)?;
            }
            disk.node_mut(inode).opened += 1;
            Ok((inode, disk.file(inode).map_or(0, |file| file.errors)))
        })?;
        let host = self.host();
        self.files.next += 1;
        let number = self.files.next;
        let file = OpenFile {
            host,
            inode,
            offset: 0,
            flags: flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC),
            errors,
            holders: 1,
            lock: None,
        };
        self.files.open.insert(number, file);
        Ok(Object::File(number))
    }

    /// Returns an object for another descriptor of an open file, or of an eventfd.
    pub(crate) fn share(&mut self, fd: i32) -> Result<Object, Errno> {
        if let Some(number) = self.kernel.event(fd) {
            return Ok(Object::Event(number));
        }
        if self.kernel.is_random(fd) {
            return Ok(Object::Random);
        }
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        self.open_file_mut(fd)?.holders += 1;
        Ok(Object::File(number))
    }

    /// A descriptor of an open file is gone.
    pub(crate) fn close_file(&mut self, number: u64) {
        let Some(file) = self.files.open.get_mut(&number) else {
            return;
        };
        file.holders -= 1;
        if file.holders > 0 {
            return;
        }
        let file = self.files.open.remove(&number).expect("it was there");
        if let Some(disk) = &mut self.hosts[file.host].disk {
            disk.node_mut(file.inode).opened -= 1;
        }
        if file.lock.is_some() {
            self.wake(|wait| wait == Wait::FileLock);
        }
    }

    pub(crate) fn read_file(
        &mut self,
        fd: i32,
        range: Range,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let file = self.open_file(fd)?;
        if file.flags & libc::O_ACCMODE == libc::O_WRONLY {
            return Err(libc::EBADF);
        }
        let at = file.at(range);
        let count = self.on_open(fd, |disk, inode, _| Ok(disk.file(inode)?.read(at, buffer)))?;
        if let Range::Next = range {
            self.open_file_mut(fd)?.offset += count as u64;
        }
        Ok(count)
    }

    /// Returns how many bytes a read of at most `len` would give.
    pub(crate) fn readable(&mut self, fd: i32, range: Range, len: usize) -> usize {
        let at = self.open_file(fd).map_or(0, |file| file.at(range));
        let end = self.on_open(fd, |disk, inode, _| Ok(disk.file(inode)?.len()));
        let left = end.unwrap_or(0).saturating_sub(at);
        len.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    pub(crate) fn write_file(
        &mut self,
        fd: i32,
        range: Range,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let file = self.open_file(fd)?;
        let appends = file.flags & libc::O_APPEND != 0;
        if file.flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(libc::EBADF);
        }
        // Nothing else happens, as on Linux: the offset of one that appends stays.
        if bytes.is_empty() {
            return Ok(0);
        }
        let at = file.at(range);
        let (at, count) = self.on_open(fd, |disk, inode, now| {
            let at = match appends {
                true => disk.file(inode)?.len(),
                false => at,
            };
            let longest = LONGEST.checked_sub(at).filter(|left| *left > 0);
            let longest = usize::try_from(longest.ok_or(libc::EFBIG)?).unwrap_or(usize::MAX);
            let (file, len) = (disk.file(inode)?, bytes.len().min(longest));
            let count = file.fitting(at, len, disk.room());
            if count == 0 {
                return Err(libc::ENOSPC);
            }
            disk.write(inode, at, &bytes[..count]);
            disk.node_mut(inode).modified = now;
            Ok((at, count))
        })?;
        if let Range::Next = range {
            self.open_file_mut(fd)?.offset = at + count as u64;
        }
        Ok(count)
    }

    pub(crate) fn seek(&mut self, fd: i32, by: i64, from: i32) -> Result<u64, Errno> {
        let offset = self.open_file(fd)?.offset;
        let len = self.on_open(fd, |disk, inode, _| Ok(disk.attributes(inode).len))?;
        let is_within = u64::try_from(by).is_ok_and(|by| by < len);
        let base = match from {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => offset,
            libc::SEEK_END => len,
            // The file has no holes but the one behind its end.
            libc::SEEK_DATA | libc::SEEK_HOLE if !is_within => return Err(libc::ENXIO),
            libc::SEEK_DATA => 0,
            libc::SEEK_HOLE => {
                self.open_file_mut(fd)?.offset = len;
                return Ok(len);
            }
            _ => return Err(libc::EINVAL),
        };
        let to = i64::try_from(base)
            .ok()
            .and_then(|base| base.checked_add(by));
        let to = to
            .and_then(|to| u64::try_from(to).ok())
            .ok_or(libc::EINVAL)?;
        self.open_file_mut(fd)?.offset = to;
        Ok(to)
    }

    pub(crate) fn resize(&mut self, fd: i32, len: i64) -> Result<(), Errno> {
        let writes = self.open_file(fd)?.flags & libc::O_ACCMODE != libc::O_RDONLY;
        let len = u64::try_from(len).map_err(|_| libc::EINVAL)?;
        if !writes {
            return Err(libc::EINVAL);
        }
        self.on_open(fd, |disk, inode, now| disk.resize(inode, len, now))
    }

    /// Returns what `stat` says of a descriptor.
    pub(crate) fn attributes(&mut self, fd: i32) -> Result<Attributes, Errno> {
        self.on_open(fd, |disk, inode, _| Ok(disk.attributes(inode)))
    }

    /// Locks a file as `flock` does, or gives the lock back. `EAGAIN`: another open file has it.
    pub(crate) fn lock_file(&mut self, fd: i32, kind: Option<LockKind>) -> Result<(), Errno> {
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        let file = self.open_file(fd)?;
        let (host, inode) = (file.host, file.inode);
        let mut others =
            self.files.open.iter().filter(|(other, file)| {
                **other != number && file.host == host && file.inode == inode
            });
        let is_refused = kind.is_some_and(|kind| {
            others.any(|(_, file)| {
                let both = file.lock.map(|had| [had, kind]);
                both.is_some_and(|both| both.contains(&LockKind::Exclusive))
            })
        });
        let file = self.open_file_mut(fd)?;
        let had = file.lock.take();
        if !is_refused {
            file.lock = kind;
        }
        // Who gives a lock back, or changes its kind, lets others try.
        if had.is_some() {
            self.wake(|wait| wait == Wait::FileLock);
        }
        match is_refused {
            true => Err(libc::EAGAIN),
            false => Ok(()),
        }
    }

    /// The process of a host is gone, and its maps with it. What it wrote there is in the files.
    pub(crate) fn end_maps(&mut self, host: usize) {
        // A host without a disk has no maps.
        _ = self.on_disk_of(host, |disk, now| {
            disk.read_all_maps(now);
            disk.end_life();
            Ok(())
        });
    }

    /// The disk of a host that loses its power keeps what it had written, and some of the rest.
    pub(crate) fn crash_disk(&mut self, host: usize) {
        self.files.open.retain(|_, file| file.host != host);
        let key = self.meet_at(host, Class::Crash);
        let loses = self.hosts[host].disk.is_some() && self.takes(key);
        // The system may have written changes of a map to the disk at any time.
        self.end_maps(host);
        let Some(disk) = &mut self.hosts[host].disk else {
            return;
        };
        let (names, files) = disk.crash(loses);
        if (names, files) == (0, 0) {
            return;
        }
        let name = &self.hosts[host].name;
        self.tell(Part::Decided, || {
            format!("{name}'s disk loses {names} changes of names, and what {files} files had")
        });
    }
}

impl OpenFile {
    fn at(&self, range: Range) -> u64 {
        match range {
            Range::Next => self.offset,
            Range::From(at) => at,
        }
    }
}

impl Volume {
    pub(super) fn write(&mut self, inode: Inode, at: u64, bytes: &[u8]) {
        // A gap between the old end and the new bytes has zeros.
        let end = self.file(inode).map_or(0, File::len);
        if at + bytes.len() as u64 > end {
            self.cut_maps(inode, end);
        }
        self.write_maps(inode, at, bytes);
        if let Some(Kind::File(file)) = self.nodes.get_mut(&inode).map(|node| &mut node.kind) {
            file.write(at, bytes, &mut self.rng);
        }
    }

    pub(crate) fn resize(&mut self, inode: Inode, len: u64, now: u64) -> Result<(), Errno> {
        self.read_maps(inode, now);
        let file = self.file_mut(inode)?;
        let end = file.len().min(len);
        file.set_len(len);
        self.cut_maps(inode, end);
        self.node_mut(inode).modified = now;
        Ok(())
    }
}

impl World {
    /// Writes to the disk of a host what `begin` names, and waits until that is done.
    pub(super) fn sync(
        &self,
        host: usize,
        begin: impl FnOnce(&mut Volume) -> Vec<Sync>,
    ) -> Result<(), Errno> {
        self.point();
        let mut state = self.lock();
        // A host without a disk has no maps.
        _ = state.on_disk_of(host, |disk, now| {
            disk.read_all_maps(now);
            Ok(())
        });
        let Some(disk) = &mut state.hosts[host].disk else {
            return Ok(());
        };
        let (delay, errors) = (disk.plan.delay.clone(), disk.plan.sync_errors);
        let syncs = begin(disk);
        let key = state.meet_at(host, Class::Sync);
        let length = state.vary(key, delay.start, |rng| rng.u64(delay));
        let until = state.now.saturating_add(length);
        self.wait(state, Wait::Disk, until);
        let mut state = self.lock();
        let fails = state.chance_at(host, Class::SyncError, errors);
        let part = [Part::Plain, Part::Decided][usize::from(fails)];
        state.happens_to(Who::Caller, part, || match fails {
            true => "has a sync that fails".into(),
            false => "has synced".into(),
        });
        if let Some(disk) = &mut state.hosts[host].disk {
            for sync in syncs {
                disk.end_sync(sync, fails);
            }
        }
        match fails {
            true => Err(libc::EIO),
            false => Ok(()),
        }
    }

    /// Writes all to the disk of the calling thread's host, or to that of a descriptor.
    pub(crate) fn sync_all(&self, of: Option<i32>) -> Result<(), Errno> {
        let host = {
            let state = self.lock();
            match of {
                Some(fd) => state.open_file(fd)?.host,
                None => state.host(),
            }
        };
        self.sync(host, Volume::begin_sync_of_all)
    }

    /// Writes to the disk the file or directory of a descriptor.
    pub(crate) fn sync_file(&self, fd: i32) -> Result<(), Errno> {
        let (number, host, inode) = {
            let state = self.lock();
            let number = state.kernel.file(fd).ok_or(libc::EBADF)?;
            let file = state.open_file(fd)?;
            (number, file.host, file.inode)
        };
        let result = self.sync(host, |disk| vec![disk.begin_sync(inode)]);
        // As on Linux, each open file reports a failure once, whoever has asked for that sync. The
        // descriptor may be closed by now.
        let mut state = self.lock();
        let errors = state.on_disk_of(host, |disk, _| {
            let node = disk.nodes.get(&inode).map(|node| &node.kind);
            Ok(match node {
                Some(Kind::File(file)) => file.errors,
                _ => 0,
            })
        })?;
        let Some(file) = state.files.open.get_mut(&number) else {
            return result;
        };
        match std::mem::replace(&mut file.errors, errors) == errors {
            true => result,
            false => Err(libc::EIO),
        }
    }

    /// Writes to the disk what a descriptor has written, if it was opened so (`O_DSYNC`).
    pub(crate) fn sync_if_asked(&self, fd: i32) -> Result<(), Errno> {
        let flags = self.lock().flags(fd)?;
        match flags & libc::O_DSYNC {
            0 => Ok(()),
            _ => self.sync_file(fd),
        }
    }
}
