//! The locks that keep others from a store's file.
//!
//! A file may have several names, such as a symbolic link. So the file itself is locked. The file
//! `-lock` is locked, too: it is beside the name under which SQLite has its log, and keeps others
//! from the log if another file gets this name meanwhile.

use std::{
    collections::BTreeSet,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::store::StoreError;

/// A file's device and inode.
type Id = (u64, u64);

fn id(file: &Metadata) -> Id {
    (file.dev(), file.ino())
}

/// The files that stores of this process have locked.
///
/// The system drops SQLite's own locks on a file when a process closes any descriptor of it. So no
/// store opens a file that another store of this process has.
static LOCKED: Mutex<BTreeSet<Id>> = Mutex::new(BTreeSet::new());

/// Keeps other stores from a file. SQLite's connections to the file must end first.
#[derive(Debug)]
pub(super) struct Lock {
    /// `None` only while this is dropped.
    file: Option<Locked>,
    id: Id,
    _beside: Locked,
    path: PathBuf,
}

impl Lock {
    /// Locks a file, and makes it unless it exists.
    pub(super) fn new(name: &Path) -> Result<Self, StoreError> {
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::metadata(name).is_ok_and(|found| locked.contains(&id(&found))) {
            return Err(StoreError::InUse);
        }
        let file = open(File::options().read(true).write(true), name)?;
        let found = file.metadata().map_err(StoreError::failed)?;
        if found.nlink() > 1 {
            return Err(StoreError::Linked(found.nlink()));
        }
        let file = Locked::new(file)?;
        let path = name.canonicalize().map_err(StoreError::failed)?;
        let mut beside = path.clone().into_os_string();
        beside.push("-lock");
        let beside = open(File::options().append(true), Path::new(&beside))?;
        let beside = Locked::new(beside)?;
        locked.insert(id(&found));
        Ok(Self {
            file: Some(file),
            id: id(&found),
            _beside: beside,
            path,
        })
    }

    /// Returns the name of the file without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        // Before another store of this process may open the file.
        self.file = None;
        locked.remove(&self.id);
    }
}

/// Opens a file, and makes it unless it exists. Payloads are for this user alone. SQLite gives its
/// log the same mode.
fn open(options: &mut OpenOptions, path: &Path) -> Result<File, StoreError> {
    let opened: io::Result<File> = options.create(true).mode(0o600).open(path);
    opened.map_err(StoreError::failed)
}

/// A file that is locked until this is dropped.
#[derive(Debug)]
struct Locked(File);

impl Locked {
    fn new(file: File) -> Result<Self, StoreError> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse),
            Err(TryLockError::Error(error)) => Err(StoreError::failed(error)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A process that another thread starts at this moment has a copy of the descriptor until
        // its `exec`. To close this one would leave the file locked until then. If unlocking
        // fails, that is what happens.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_process_that_is_just_being_started_keeps_no_lock() {
        let name = format!("durable-lock-{}.db", std::process::id());
        let path = env::temp_dir().join(name);
        let lock = Lock::new(&path).unwrap();
        assert!(matches!(Lock::new(&path), Err(StoreError::InUse)));
        // Copies like those of a process between its `fork` and its `exec`.
        let copies = [&lock.file.as_ref().unwrap().0, &lock._beside.0].map(File::try_clone);
        drop(lock);
        let again = Lock::new(&path);
        assert!(copies.iter().all(Result::is_ok));
        drop(again.unwrap());
        let mut beside = path.clone().into_os_string();
        beside.push("-lock");
        fs::remove_file(beside).unwrap();
        fs::remove_file(path).unwrap();
    }
}
