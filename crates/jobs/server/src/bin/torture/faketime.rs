//! libfaketime, a library that gives a process a wrong wall clock.

use std::{fs, path::PathBuf};

/// Returns the path of the library.
pub fn find() -> Result<PathBuf, String> {
    let dirs = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut paths = dirs.map(|dir| dir.path().join("faketime/libfaketime.so.1"));
    let path = paths.find(|path| path.is_file());
    path.ok_or_else(|| "libfaketime is not installed: apt-get install libfaketime".into())
}
