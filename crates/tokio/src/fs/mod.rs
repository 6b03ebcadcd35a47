//! Files and directories. Each operation is one of the standard library, on a blocking thread of
//! the runtime.

mod dir;
mod file;
mod open_options;

pub use std::fs::FileTimes;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use self::{
    dir::{DirBuilder, DirEntry, ReadDir, read_dir},
    file::File,
    open_options::OpenOptions,
};
use crate::blocking::run;

/// Defines functions of a path that call those of the standard library.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident -> $Output:ty = $std:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// Returns the operating system's error.
        pub async fn $name(path: impl AsRef<Path>) -> io::Result<$Output> {
            let path = path.as_ref().to_owned();
            run(move || $std(path)).await
        }
    )*};
}

operations! {
    /// Returns the absolute path, with all symbolic links resolved.
    canonicalize -> PathBuf = fs::canonicalize;
    /// Creates a directory.
    create_dir -> () = fs::create_dir;
    /// Creates a directory, and the directories above it that are missing.
    create_dir_all -> () = fs::create_dir_all;
    /// Returns the metadata of a file. Follows symbolic links.
    metadata -> fs::Metadata = fs::metadata;
    /// Reads a whole file.
    read -> Vec<u8> = fs::read;
    /// Returns the path that a symbolic link has.
    read_link -> PathBuf = fs::read_link;
    /// Reads a whole file of UTF-8.
    read_to_string -> String = fs::read_to_string;
    /// Removes an empty directory.
    remove_dir -> () = fs::remove_dir;
    /// Removes a directory with all that is in it.
    remove_dir_all -> () = fs::remove_dir_all;
    /// Removes a file.
    remove_file -> () = fs::remove_file;
    /// Returns the metadata of a file. Does not follow a symbolic link.
    symlink_metadata -> fs::Metadata = fs::symlink_metadata;
    /// Returns whether a path exists. Follows symbolic links.
    try_exists -> bool = fs::exists;
}

/// Defines functions of two paths that call those of the standard library.
macro_rules! operations_on_two {
    ($($(#[$doc:meta])* $name:ident -> $Output:ty = $std:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// Returns the operating system's error.
        pub async fn $name(
            from: impl AsRef<Path>,
            to: impl AsRef<Path>,
        ) -> io::Result<$Output> {
            let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
            run(move || $std(from, to)).await
        }
    )*};
}

operations_on_two! {
    /// Copies the content and the permissions of a file. Returns the number of bytes.
    copy -> u64 = fs::copy;
    /// Creates a hard link `to` of the file `from`.
    hard_link -> () = fs::hard_link;
    /// Renames a file or a directory. Replaces a file that is there.
    rename -> () = fs::rename;
    /// Creates a symbolic link `to` with the path `from`.
    symlink -> () = std::os::unix::fs::symlink;
}

/// Sets the permissions of a file.
///
/// # Errors
///
/// Returns the operating system's error.
pub async fn set_permissions(
    path: impl AsRef<Path>,
    permissions: fs::Permissions,
) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::set_permissions(path, permissions)).await
}

/// Writes a whole file. Replaces the content of a file that is there.
///
/// # Errors
///
/// Returns the operating system's error.
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    run(move || fs::write(path, contents)).await
}
