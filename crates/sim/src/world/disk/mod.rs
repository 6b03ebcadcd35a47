//! The disks of the hosts: what programs read, and what a crash leaves of them.
//!
//! Each file has the contents that are read, and those that are on the disk. A sync writes what is
//! read to the disk. Names work the same way: a directory has names that are looked up, and those
//! that are on the disk. The changes of a directory come to the disk in their order.

mod file;
mod maps;
mod names;
mod open;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    path::PathBuf,
};

use super::net::Errno;
use crate::{calls::Pages, disk::Disk};

use self::{file::File, maps::Map};
pub(crate) use self::{
    names::Place,
    open::{Files, LockKind, Range},
};

/// The number of a file or a directory of a disk.
pub(crate) type Inode = u64;

/// The directory at which the disk is mounted.
const ROOT: Inode = 1;

/// The disk of a host.
pub(crate) struct Volume {
    /// The path at which it is mounted.
    pub(crate) mount: PathBuf,
    pub(crate) plan: Disk,
    nodes: BTreeMap<Inode, Node>,
    next: Inode,
    /// The changes of names that a crash may take back, with their numbers, the oldest one first.
    changes: VecDeque<(u64, Step)>,
    changed: u64,
    /// Chooses what comes to the disk by itself.
    rng: fastrand::Rng,
    /// The number of the device, which no other host has, and no other life of this one. A library
    /// in C knows open files by it, in what all hosts share.
    device: [u32; 2],
    /// The shared maps of files, and the pages of each file that is or was mapped.
    maps: Vec<Map>,
    pages: BTreeMap<Inode, Pages>,
}

struct Node {
    kind: Kind,
    /// The permissions. They are kept, and have no effect.
    mode: u32,
    /// By the wall clock of the host.
    created: u64,
    modified: u64,
    /// How many descriptions of open files it has.
    opened: usize,
}

enum Kind {
    File(File),
    Dir(Dir),
}

#[derive(Default)]
struct Dir {
    names: BTreeMap<OsString, Inode>,
    /// Those on the disk.
    safe: BTreeMap<OsString, Inode>,
    parent: Inode,
}

/// What comes to the disk at once.
struct Step {
    parts: Vec<Change>,
    /// It takes a name of a directory away. All earlier ones come before it: so no directory is
    /// within itself, and what was moved out of one is not lost with it.
    is_whole: bool,
}

/// A name of a directory is given, or taken away.
struct Change {
    dir: Inode,
    name: OsString,
    to: Option<Inode>,
}

/// What `stat` says of a file or directory.
pub(crate) struct Attributes {
    pub(crate) device: [u32; 2],
    pub(crate) inode: Inode,
    pub(crate) is_dir: bool,
    pub(crate) mode: u32,
    pub(crate) len: u64,
    pub(crate) takes: u64,
    pub(crate) links: u64,
    pub(crate) created: u64,
    pub(crate) modified: u64,
}

/// A sync that has begun.
pub(crate) enum Sync {
    File(Inode, file::Sync),
    /// The changes of names with these numbers.
    Names(BTreeSet<u64>),
}

impl Volume {
    pub(crate) fn new(
        mount: PathBuf,
        plan: Disk,
        now: u64,
        rng: fastrand::Rng,
        device: u32,
    ) -> Self {
        let root = Node {
            kind: Kind::Dir(Dir {
                parent: ROOT,
                ..Dir::default()
            }),
            mode: 0o755,
            created: now,
            modified: now,
            opened: 0,
        };
        Self {
            mount,
            plan,
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            changes: VecDeque::new(),
            changed: 0,
            rng,
            device: [0, device],
            maps: Vec::new(),
            pages: BTreeMap::new(),
        }
    }

    fn node(&self, inode: Inode) -> &Node {
        &self.nodes[&inode]
    }

    fn node_mut(&mut self, inode: Inode) -> &mut Node {
        self.nodes.get_mut(&inode).expect("the disk has it")
    }

    fn dir(&self, inode: Inode) -> Result<&Dir, Errno> {
        match &self.node(inode).kind {
            Kind::Dir(dir) => Ok(dir),
            Kind::File(_) => Err(libc::ENOTDIR),
        }
    }

    fn dir_mut(&mut self, inode: Inode) -> &mut Dir {
        match &mut self.node_mut(inode).kind {
            Kind::Dir(dir) => dir,
            Kind::File(_) => unreachable!("the caller knows that it is a directory"),
        }
    }

    fn file(&self, inode: Inode) -> Result<&File, Errno> {
        match &self.node(inode).kind {
            Kind::File(file) => Ok(file),
            Kind::Dir(_) => Err(libc::EISDIR),
        }
    }

    fn file_mut(&mut self, inode: Inode) -> Result<&mut File, Errno> {
        match &mut self.node_mut(inode).kind {
            Kind::File(file) => Ok(file),
            Kind::Dir(_) => Err(libc::EISDIR),
        }
    }

    fn is_dir(&self, inode: Inode) -> bool {
        self.dir(inode).is_ok()
    }

    /// Returns whether a directory has a name, or is the root.
    fn is_named(&self, inode: Inode, dir: &Dir) -> bool {
        let parent = self.dir(dir.parent);
        inode == ROOT || parent.is_ok_and(|it| it.names.values().any(|child| *child == inode))
    }

    /// Returns how many names a file has, or what Linux says of a directory.
    fn links(&self, inode: Inode) -> u64 {
        let count = |all: &Dir, which: &dyn Fn(Inode) -> bool| {
            all.names.values().filter(|it| which(**it)).count() as u64
        };
        match &self.node(inode).kind {
            Kind::Dir(dir) if !self.is_named(inode, dir) => 0,
            Kind::Dir(dir) => 2 + count(dir, &|child| self.is_dir(child)),
            Kind::File(_) => {
                let dirs = self.nodes.keys().filter_map(|it| self.dir(*it).ok());
                dirs.map(|dir| count(dir, &|child| child == inode)).sum()
            }
        }
    }

    pub(crate) fn attributes(&self, inode: Inode) -> Attributes {
        let node = self.node(inode);
        let (is_dir, len, takes) = match &node.kind {
            Kind::Dir(_) => (true, 4_096, 4_096),
            Kind::File(file) => (false, file.len(), file.takes()),
        };
        Attributes {
            device: self.device,
            inode,
            is_dir,
            mode: node.mode,
            len,
            takes,
            links: self.links(inode),
            created: node.created,
            modified: node.modified,
        }
    }

    pub(crate) fn set_mode(&mut self, inode: Inode, mode: u32) {
        self.node_mut(inode).mode = mode & 0o7777;
    }

    pub(crate) fn set_modified(&mut self, inode: Inode, to: u64) {
        self.node_mut(inode).modified = to;
    }

    /// Returns the files and directories that have a name, or are open.
    fn reachable(&self) -> BTreeSet<Inode> {
        let (mut found, mut next) = (BTreeSet::new(), vec![ROOT]);
        next.extend(
            self.nodes
                .iter()
                .filter(|it| it.1.opened > 0)
                .map(|it| it.0),
        );
        while let Some(inode) = next.pop() {
            if found.insert(inode) {
                if let Kind::Dir(dir) = &self.node(inode).kind {
                    next.extend(dir.names.values());
                }
            }
        }
        found
    }

    /// Returns how many bytes are free.
    fn room(&self) -> u64 {
        if self.plan.capacity == u64::MAX {
            return u64::MAX;
        }
        let files = self
            .reachable()
            .into_iter()
            .filter_map(|it| self.file(it).ok());
        let taken: u64 = files.map(File::takes).sum();
        self.plan.capacity.saturating_sub(taken)
    }

    /// Begins to write to the disk the contents of a file, or the names of a directory.
    pub(crate) fn begin_sync(&mut self, inode: Inode) -> Sync {
        match self.file_mut(inode) {
            Ok(file) => Sync::File(inode, file.begin_sync()),
            Err(_) => Sync::Names(self.changes_before(inode)),
        }
    }

    /// Returns the changes of a directory, and those that come to the disk before them.
    fn changes_before(&self, dir: Inode) -> BTreeSet<u64> {
        // Whose earlier changes are needed, and which directories need a name.
        let (mut dirs, mut named) = (BTreeSet::from([dir]), BTreeSet::new());
        let (mut found, mut all) = (BTreeSet::new(), false);
        for (number, step) in self.changes.iter().rev() {
            let of_step = || step.parts.iter().map(|part| part.dir);
            let names_one = step
                .parts
                .iter()
                .any(|it| it.to.is_some_and(|to| named.contains(&to)));
            if !(all || names_one || of_step().any(|dir| dirs.contains(&dir))) {
                continue;
            }
            found.insert(*number);
            all |= step.is_whole;
            dirs.extend(of_step());
            // What is moved into a directory would be lost if that had no name.
            if names_one || step.parts.len() > 1 {
                named.extend(of_step());
            }
        }
        found
    }

    /// Begins to write all to the disk.
    pub(crate) fn begin_sync_of_all(&mut self) -> Vec<Sync> {
        let changes = self.changes.iter().map(|(number, _)| *number);
        let mut all = vec![Sync::Names(changes.collect())];
        for (inode, node) in &mut self.nodes {
            if let Kind::File(file) = &mut node.kind {
                all.push(Sync::File(*inode, file.begin_sync()));
            }
        }
        all
    }

    pub(crate) fn end_sync(&mut self, sync: Sync, fails: bool) {
        match sync {
            Sync::File(inode, sync) => {
                if let Some(node) = self.nodes.get_mut(&inode) {
                    if let Kind::File(file) = &mut node.kind {
                        file.end_sync(sync, fails, &mut self.rng);
                    }
                }
            }
            // Unlike the bytes of a file, names are written later.
            Sync::Names(_) if fails => {}
            Sync::Names(numbers) => self.keep_changes(|number, _| numbers.contains(&number)),
        }
    }

    /// Writes some changes of names to the disk.
    fn keep_changes(&mut self, mut keeps: impl FnMut(u64, &Step) -> bool) {
        for (number, step) in std::mem::take(&mut self.changes) {
            if !keeps(number, &step) {
                self.changes.push_back((number, step));
                continue;
            }
            for part in step.parts {
                let dir = self.dir_mut(part.dir);
                match part.to {
                    Some(inode) => _ = dir.safe.insert(part.name, inode),
                    None => _ = dir.safe.remove(&part.name),
                }
            }
        }
    }

    /// Leaves what a crash leaves, or all. Returns how many changes of names and how many files
    /// lost something.
    pub(crate) fn crash(&mut self, loses: bool) -> (usize, usize) {
        let mut rng = self.rng.fork();
        // How many of ten changes come to the disk, if those before them do.
        let luck = [0, 5, 8, 10][rng.usize(..4)];
        let dirs = self
            .nodes
            .iter()
            .filter(|it| matches!(it.1.kind, Kind::Dir(_)));
        let dirs: BTreeSet<Inode> = dirs.map(|it| *it.0).collect();
        // The directories of which a change did not come, and those that have no name for that.
        let (mut behind, mut unnamed) = (BTreeSet::new(), BTreeSet::new());
        self.keep_changes(|_, step| {
            let mut parts = step.parts.iter();
            let is_next = match step.is_whole {
                true => behind.is_empty(),
                false => parts.all(|part| !behind.contains(&part.dir)),
            };
            // What is moved into a directory without a name would be lost.
            let is_lost = step.parts.iter().any(|part| unnamed.contains(&part.dir));
            let is_lucky = !loses || rng.u8(..10) < luck;
            let comes = is_next && !(is_lost && step.parts.len() > 1) && is_lucky;
            if !comes {
                behind.extend(step.parts.iter().map(|part| part.dir));
            }
            if !comes || is_lost {
                let made = step.parts.iter().filter_map(|part| part.to);
                unnamed.extend(made.filter(|to| dirs.contains(to)));
            }
            comes
        });
        let lost_names = self.changes.len();
        self.changes.clear();
        let mut lost_files = 0;
        for node in self.nodes.values_mut() {
            node.opened = 0;
            match &mut node.kind {
                Kind::File(file) => lost_files += usize::from(file.crash(&mut rng, loses)),
                Kind::Dir(dir) => dir.names = dir.safe.clone(),
            }
        }
        let left = self.reachable();
        self.nodes.retain(|inode, _| left.contains(inode));
        self.find_parents();
        (lost_names, lost_files)
    }

    /// Tells each directory which one it is in.
    fn find_parents(&mut self) {
        let dirs = self
            .nodes
            .iter()
            .filter_map(|(inode, node)| match &node.kind {
                Kind::Dir(dir) => Some((*inode, dir)),
                Kind::File(_) => None,
            });
        let pairs = dirs.flat_map(|(parent, dir)| dir.names.values().map(move |it| (*it, parent)));
        for (child, parent) in pairs.collect::<Vec<_>>() {
            if self.is_dir(child) {
                self.dir_mut(child).parent = parent;
            }
        }
    }
}
