//! The open files of the hosts.

use std::collections::BTreeMap;

use super::{Attributes, Inode, Place, Sync, Volume};
use crate::world::{State, Wait, World, clocks::Clock, kernel::Object, net::Errno};

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
    /// Those of `open`.
    flags: i32,
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
        let now = self.clocks().read(Clock::Wall, self.now);
        f(self.volume().ok_or(libc::ENOENT)?, now)
    }

    fn open_file(&self, fd: i32) -> Result<&OpenFile, Errno> {
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        Ok(&self.files.open[&number])
    }

    fn open_file_mut(&mut self, fd: i32) -> Result<&mut OpenFile, Errno> {
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        let file = self.files.open.get_mut(&number);
        Ok(file.expect("an open descriptor has a file"))
    }

    /// Returns the directory or file of a descriptor.
    pub(crate) fn inode(&self, fd: i32) -> Result<Inode, Errno> {
        self.open_file(fd).map(|file| file.inode)
    }

    /// Returns the flags with which a descriptor was opened.
    pub(crate) fn flags(&self, fd: i32) -> Result<i32, Errno> {
        self.open_file(fd).map(|file| file.flags)
    }

    /// Opens a file of the calling thread's host.
    pub(crate) fn open(&mut self, place: &Place, flags: i32, mode: u32) -> Result<Object, Errno> {
        let inode = self.on_disk(|disk, now| {
            let inode = disk.open(place, flags, mode, now)?;
            let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
            if flags & libc::O_TRUNC != 0 && writes {
                disk.file_mut(inode)?.set_len(0);
                disk.node_mut(inode).modified = now;
            }
            disk.node_mut(inode).opened += 1;
            Ok(inode)
        })?;
        let host = self.host();
        self.files.next += 1;
        let number = self.files.next;
        let file = OpenFile {
            host,
            inode,
            offset: 0,
            flags,
            holders: 1,
            lock: None,
        };
        self.files.open.insert(number, file);
        Ok(Object::File(number))
    }

    /// Returns an object for another descriptor of an open file.
    pub(crate) fn share(&mut self, fd: i32) -> Result<Object, Errno> {
        self.open_file_mut(fd)?.holders += 1;
        let number = self.kernel.file(fd);
        Ok(Object::File(number.expect("it has one")))
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
        let inode = file.inode;
        if file.flags & libc::O_ACCMODE == libc::O_WRONLY {
            return Err(libc::EBADF);
        }
        let at = match range {
            Range::Next => file.offset,
            Range::From(at) => at,
        };
        let count = self.on_disk(|disk, _| Ok(disk.file(inode)?.read(at, buffer)))?;
        if let Range::Next = range {
            self.open_file_mut(fd)?.offset += count as u64;
        }
        Ok(count)
    }

    pub(crate) fn write_file(
        &mut self,
        fd: i32,
        range: Range,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let file = self.open_file(fd)?;
        let (inode, appends) = (file.inode, file.flags & libc::O_APPEND != 0);
        if file.flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(libc::EBADF);
        }
        // Nothing else happens, as on Linux: the offset of one that appends stays.
        if bytes.is_empty() {
            return Ok(0);
        }
        let at = match range {
            Range::Next => file.offset,
            Range::From(at) => at,
        };
        let (at, count) = self.on_disk(|disk, now| {
            let at = match appends {
                true => disk.file(inode)?.len(),
                false => at,
            };
            let count = disk.fits(inode, at, bytes.len())?;
            disk.file_mut(inode)?.write(at, &bytes[..count]);
            disk.node_mut(inode).modified = now;
            Ok((at, count))
        })?;
        if let Range::Next = range {
            self.open_file_mut(fd)?.offset = at + count as u64;
        }
        Ok(count)
    }

    pub(crate) fn seek(&mut self, fd: i32, by: i64, from: i32) -> Result<u64, Errno> {
        let file = self.open_file(fd)?;
        let (inode, offset) = (file.inode, file.offset);
        let base = match from {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => offset,
            libc::SEEK_END => self.on_disk(|disk, _| Ok(disk.attributes(inode).len))?,
            // Holes are not shown.
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
        let file = self.open_file(fd)?;
        let (inode, writes) = (file.inode, file.flags & libc::O_ACCMODE != libc::O_RDONLY);
        let len = u64::try_from(len).map_err(|_| libc::EINVAL)?;
        if !writes {
            return Err(libc::EINVAL);
        }
        self.on_disk(|disk, now| {
            disk.file_mut(inode)?.set_len(len);
            disk.node_mut(inode).modified = now;
            Ok(())
        })
    }

    /// Returns what `stat` says of a descriptor.
    pub(crate) fn attributes(&mut self, fd: i32) -> Result<Attributes, Errno> {
        let inode = self.inode(fd)?;
        self.on_disk(|disk, _| Ok(disk.attributes(inode)))
    }

    /// Locks a file as `flock` does, or gives the lock back. `EAGAIN`: another open file has it.
    pub(crate) fn lock_file(&mut self, fd: i32, kind: Option<LockKind>) -> Result<(), Errno> {
        let number = self.kernel.file(fd).ok_or(libc::EBADF)?;
        let (host, inode) = (self.host(), self.inode(fd)?);
        let others =
            self.files.open.iter().filter(|(other, file)| {
                **other != number && file.host == host && file.inode == inode
            });
        let is_refused = match kind {
            None => false,
            Some(LockKind::Shared) => others
                .into_iter()
                .any(|(_, file)| file.lock == Some(LockKind::Exclusive)),
            Some(LockKind::Exclusive) => others.into_iter().any(|(_, file)| file.lock.is_some()),
        };
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

    /// The disk of a host that loses its power keeps what it had written, and some of the rest.
    pub(crate) fn crash_disk(&mut self, host: usize) {
        self.files.open.retain(|_, file| file.host != host);
        let Some(disk) = &mut self.hosts[host].disk else {
            return;
        };
        let (names, files) = disk.crash(&mut self.rng);
        self.note(|| {
            format!("its disk loses {names} changes of names, and what {files} files had")
        });
    }
}

impl Volume {
    /// Returns how many of `len` bytes that a program writes have room.
    fn fits(&self, inode: Inode, at: u64, len: usize) -> Result<usize, Errno> {
        let (file, room) = (self.file(inode)?, self.room());
        let mut fitting = len;
        while fitting > 0 && file.would_take(at, fitting) > room {
            // Leave the last sector out.
            let end = (at + fitting as u64 - 1) / 512 * 512;
            fitting = usize::try_from(end.saturating_sub(at)).unwrap_or(0);
        }
        match fitting == 0 && len > 0 {
            true => Err(libc::ENOSPC),
            false => Ok(fitting),
        }
    }
}

impl World {
    /// Writes to the disk what `begin` names, and waits until that is done.
    pub(crate) fn sync(&self, begin: impl FnOnce(&mut Volume) -> Vec<Sync>) -> Result<(), Errno> {
        self.point();
        let mut state = self.lock();
        let Some(disk) = state.volume() else {
            return Ok(());
        };
        let (delay, errors) = (disk.plan.delay.clone(), disk.plan.sync_errors);
        let syncs = begin(disk);
        let until = state.now + state.rng.u64(delay);
        self.wait(state, Wait::Time, until);
        let mut state = self.lock();
        let fails = state.rng.f64() < errors;
        state.note(|| match fails {
            true => "a sync fails".into(),
            false => "a sync is done".into(),
        });
        if let Some(disk) = state.volume() {
            for sync in syncs {
                disk.end_sync(sync, fails);
            }
        }
        match fails {
            true => Err(libc::EIO),
            false => Ok(()),
        }
    }

    /// Writes to the disk the file or directory of a descriptor.
    pub(crate) fn sync_file(&self, fd: i32) -> Result<(), Errno> {
        let inode = self.lock().inode(fd)?;
        self.sync(|disk| vec![disk.begin_sync(inode)])
    }
}
