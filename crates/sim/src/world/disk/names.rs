//! The names of files and directories.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use super::{Change, Dir, File, Inode, Kind, Node, ROOT, Step, Volume};
use crate::world::net::Errno;

/// The length that a name may have, as on most file systems.
const LONGEST: usize = 255;

/// A path on a disk: where it begins, and its names.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) from: Inode,
    pub(crate) names: Vec<OsString>,
    /// It ends with a slash, so it must be a directory.
    pub(crate) is_dir: bool,
}

/// The last step of a path: a name of a directory, and what has it.
struct Last<'a> {
    dir: Inode,
    name: &'a OsStr,
    inode: Option<Inode>,
}

impl Place {
    /// A path relative to the directory at which the disk is mounted.
    pub(crate) fn on_mount(path: &[u8]) -> Self {
        Self::new(ROOT, path)
    }

    /// A path relative to a directory.
    pub(crate) fn new(from: Inode, path: &[u8]) -> Self {
        let names = path.split(|byte| *byte == b'/');
        let names = names.filter(|name| !name.is_empty() && *name != b".");
        Self {
            from,
            names: names.map(|name| OsStr::from_bytes(name).into()).collect(),
            is_dir: path.ends_with(b"/") || path.ends_with(b"/."),
        }
    }
}

impl Volume {
    fn step(&self, dir: Inode, name: &OsStr) -> Result<Option<Inode>, Errno> {
        let found = self.dir(dir)?;
        if name.len() > LONGEST {
            return Err(libc::ENAMETOOLONG);
        }
        match name == ".." {
            true => Ok(Some(found.parent)),
            false => Ok(found.names.get(name).copied()),
        }
    }

    fn walk(&self, from: Inode, names: &[OsString]) -> Result<Inode, Errno> {
        names
            .iter()
            .try_fold(from, |dir, name| self.step(dir, name)?.ok_or(libc::ENOENT))
    }

    /// Returns what a path leads to.
    pub(crate) fn find(&self, place: &Place) -> Result<Inode, Errno> {
        let inode = self.walk(place.from, &place.names)?;
        match place.is_dir && !self.is_dir(inode) {
            true => Err(libc::ENOTDIR),
            false => Ok(inode),
        }
    }

    /// Returns the last step of a path. `at_root` is the error if there is none, or if it is `..`.
    fn last<'a>(&self, place: &'a Place, at_root: Errno) -> Result<Last<'a>, Errno> {
        let Some((name, before)) = place.names.split_last() else {
            return Err(at_root);
        };
        let dir = self.walk(place.from, before)?;
        let inode = self.step(dir, name)?;
        match name == ".." {
            true => Err(at_root),
            false => Ok(Last { dir, name, inode }),
        }
    }

    /// Gives names, and takes some away. A crash leaves all of these changes, or none.
    fn change(&mut self, parts: Vec<Change>, now: u64) {
        let mut taken = parts.iter().filter(|part| part.to.is_none());
        let is_whole = taken.any(|part| {
            let names = self.dir(part.dir).map(|dir| &dir.names);
            let had = names.ok().and_then(|names| names.get(&part.name));
            had.is_some_and(|had| self.is_dir(*had))
        });
        for part in &parts {
            self.node_mut(part.dir).modified = now;
            let dir = self.dir_mut(part.dir);
            match part.to {
                Some(inode) => _ = dir.names.insert(part.name.clone(), inode),
                None => _ = dir.names.remove(&part.name),
            }
        }
        self.changed += 1;
        self.changes
            .push_back((self.changed, Step { parts, is_whole }));
    }

    /// Nothing gets a name in a directory that was removed, and that somebody has open.
    fn must_be_named(&self, dir: Inode) -> Result<(), Errno> {
        match self.is_named(dir, self.dir(dir)?) {
            true => Ok(()),
            false => Err(libc::ENOENT),
        }
    }

    fn add(&mut self, last: &Last<'_>, kind: Kind, mode: u32, now: u64) -> Result<Inode, Errno> {
        self.must_be_named(last.dir)?;
        let inode = self.next;
        self.next += 1;
        let node = Node {
            kind,
            mode: mode & 0o7777 & !0o022,
            created: now,
            modified: now,
            opened: 0,
        };
        self.nodes.insert(inode, node);
        let to = Some(inode);
        self.change(vec![last.change(to)], now);
        Ok(inode)
    }

    /// Finds or makes the file that a program opens with these flags of `open`.
    pub(crate) fn open(
        &mut self,
        place: &Place,
        flags: i32,
        mode: u32,
        now: u64,
    ) -> Result<Inode, Errno> {
        let creates = flags & libc::O_CREAT != 0;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if !creates {
            let inode = self.find(place)?;
            let is_dir = self.is_dir(inode);
            if flags & libc::O_DIRECTORY != 0 && !is_dir {
                return Err(libc::ENOTDIR);
            }
            if writes && is_dir {
                return Err(libc::EISDIR);
            }
            return Ok(inode);
        }
        let last = self.last(place, libc::EISDIR)?;
        match last.inode {
            _ if place.is_dir => Err(libc::EISDIR),
            Some(_) if flags & libc::O_EXCL != 0 => Err(libc::EEXIST),
            Some(inode) if self.is_dir(inode) => Err(libc::EISDIR),
            Some(inode) => Ok(inode),
            None => self.add(&last, Kind::File(File::default()), mode, now),
        }
    }

    pub(crate) fn make_dir(&mut self, place: &Place, mode: u32, now: u64) -> Result<(), Errno> {
        let last = self.last(place, libc::EEXIST)?;
        if last.inode.is_some() {
            return Err(libc::EEXIST);
        }
        let dir = Dir {
            parent: last.dir,
            ..Dir::default()
        };
        self.add(&last, Kind::Dir(dir), mode, now).map(drop)
    }

    pub(crate) fn remove_file(&mut self, place: &Place, now: u64) -> Result<(), Errno> {
        let last = self.last(place, libc::EISDIR)?;
        let inode = last.inode.ok_or(libc::ENOENT)?;
        match (self.is_dir(inode), place.is_dir) {
            (true, _) => return Err(libc::EISDIR),
            (false, true) => return Err(libc::ENOTDIR),
            _ => {}
        }
        self.change(vec![last.change(None)], now);
        Ok(())
    }

    pub(crate) fn remove_dir(&mut self, place: &Place, now: u64) -> Result<(), Errno> {
        let at_root = match place.names.last() {
            Some(_) => libc::ENOTEMPTY,
            None => libc::EBUSY,
        };
        let last = self.last(place, at_root)?;
        let inode = last.inode.ok_or(libc::ENOENT)?;
        if !self.dir(inode)?.names.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.change(vec![last.change(None)], now);
        Ok(())
    }

    pub(crate) fn link(&mut self, from: &Place, to: &Place, now: u64) -> Result<(), Errno> {
        let inode = self.find(from)?;
        let last = self.last(to, libc::EEXIST)?;
        if last.inode.is_some() {
            return Err(libc::EEXIST);
        }
        if to.is_dir {
            return Err(libc::ENOENT);
        }
        if self.is_dir(inode) {
            return Err(libc::EPERM);
        }
        self.must_be_named(last.dir)?;
        self.change(vec![last.change(Some(inode))], now);
        Ok(())
    }

    /// Gives a file or directory another name. `replaces`: the new name may be in use.
    pub(crate) fn rename(
        &mut self,
        from: &Place,
        to: &Place,
        replaces: bool,
        now: u64,
    ) -> Result<(), Errno> {
        let old = self.last(from, libc::EBUSY)?;
        let new = self.last(to, libc::EBUSY)?;
        let inode = old.inode.ok_or(libc::ENOENT)?;
        let is_dir = self.is_dir(inode);
        if new.inode.is_some() && !replaces {
            return Err(libc::EEXIST);
        }
        if !is_dir && (from.is_dir || to.is_dir) {
            return Err(libc::ENOTDIR);
        }
        if is_dir && self.is_within(new.dir, inode) {
            return Err(libc::EINVAL);
        }
        if let Some(replaced) = new.inode {
            if replaced == inode {
                return Ok(());
            }
            if self.is_within(old.dir, replaced) {
                return Err(libc::ENOTEMPTY);
            }
            match (is_dir, self.is_dir(replaced)) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                (true, true) if !self.dir(replaced)?.names.is_empty() => {
                    return Err(libc::ENOTEMPTY);
                }
                _ => {}
            }
        }
        self.must_be_named(new.dir)?;
        let to = new.dir;
        self.change(vec![old.change(None), new.change(Some(inode))], now);
        if is_dir {
            self.dir_mut(inode).parent = to;
        }
        Ok(())
    }

    /// Returns whether a directory is another one, or within it.
    fn is_within(&self, dir: Inode, other: Inode) -> bool {
        let mut at = dir;
        while at != other {
            match self.dir(at) {
                Ok(found) if at != ROOT => at = found.parent,
                _ => return false,
            }
        }
        true
    }

    /// Returns the names of a directory, with what has them, and whether that is a directory.
    pub(crate) fn list(&self, inode: Inode) -> Result<Vec<(OsString, Inode, bool)>, Errno> {
        let dir = self.dir(inode)?;
        let own = [(".".into(), inode), ("..".into(), dir.parent)];
        let names = dir.names.iter().map(|(name, inode)| (name.clone(), *inode));
        let all = own.into_iter().chain(names);
        Ok(all
            .map(|(name, inode)| (name, inode, self.is_dir(inode)))
            .collect())
    }

    /// Returns the path of a directory or of a file with this name, from the root of the disk on.
    pub(crate) fn path(&self, place: &Place) -> Result<Vec<u8>, Errno> {
        let inode = self.find(place)?;
        let (mut dir, mut names) = match self.is_dir(inode) {
            true => (inode, Vec::new()),
            false => {
                let last = self.last(place, libc::ENOENT)?;
                (last.dir, vec![last.name.to_owned()])
            }
        };
        while dir != ROOT {
            let parent = self.dir(dir)?.parent;
            let mut children = self.dir(parent)?.names.iter();
            let name = children.find(|(_, child)| **child == dir);
            names.push(name.ok_or(libc::ENOENT)?.0.clone());
            dir = parent;
        }
        let mut path = self.mount.as_os_str().as_bytes().to_vec();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend(name.as_bytes());
        }
        Ok(path)
    }
}

impl Last<'_> {
    fn change(&self, to: Option<Inode>) -> Change {
        Change {
            dir: self.dir,
            name: self.name.to_owned(),
            to,
        }
    }
}
