//! Directories of tests.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A directory that is removed on drop.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new() -> Self {
        loop {
            let path = env::temp_dir().join(unique());
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A test that was killed has left it behind, in a process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a name that no other test uses, and no other run that has not ended.
pub fn unique() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    format!("tourbillon-{}-{n}", std::process::id())
}
