//! Files, by the crate `async-fs`. Its operations block threads of the crate `blocking`, and not
//! workers.
//!
//! As in tokio, a write returns when the bytes are in a buffer: `flush` says whether they have
//! arrived in the file. A paused clock does not wait for an operation.

use std::{
    ffi::OsString,
    future::poll_fn,
    io::{self, SeekFrom},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll, ready},
};

use async_fs::unix::{DirBuilderExt, DirEntryExt, OpenOptionsExt};
pub use async_fs::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions,
    symlink_metadata, unix::symlink, write,
};
use futures_core::Stream;
use real::io::{AsyncSeek, AsyncWrite};

/// An open file, and the position of a seek that has begun.
#[derive(Debug)]
pub struct File(async_fs::File, Option<SeekFrom>);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        async_fs::File::open(path).await.map(Self::new)
    }

    /// Opens a file for writing, and empties it. Creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        async_fs::File::create(path).await.map(Self::new)
    }

    /// Creates a file for reading and writing.
    ///
    /// # Errors
    ///
    /// Fails if the file exists, or with another error of the operating system.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = Self::options();
        options.read(true).write(true).create_new(true);
        options.open(path).await
    }

    /// Returns options for opening a file.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Wraps a file of the standard library.
    pub fn from_std(file: std::fs::File) -> Self {
        Self::new(file.into())
    }

    async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await
    }

    fn new(file: async_fs::File) -> Self {
        Self(file, None)
    }

    /// Writes what is buffered, and waits until data and metadata are on the disk.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, also that of an earlier write.
    pub async fn sync_all(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.0.sync_all().await
    }

    /// Writes what is buffered, and waits until the data is on the disk.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, also that of an earlier write.
    pub async fn sync_data(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.0.sync_data().await
    }

    /// Writes what is buffered, and cuts or extends the file to `size` bytes.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, also that of an earlier write.
    pub async fn set_len(&mut self, size: u64) -> io::Result<()> {
        self.flush().await?;
        self.0.set_len(size).await
    }

    /// Returns the metadata of the file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.0.metadata().await
    }

    /// Sets the permissions of the file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn set_permissions(&self, permissions: std::fs::Permissions) -> io::Result<()> {
        self.0.set_permissions(permissions).await
    }

    /// Returns another handle of the open file, which shares its position.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::from_std(self.0.as_fd().try_clone_to_owned()?.into()))
    }

    /// Writes what is buffered, and returns the file of the standard library.
    ///
    /// # Panics
    ///
    /// Panics if the process has no descriptor left.
    pub async fn into_std(mut self) -> std::fs::File {
        // The error of a buffered write is lost here, as in tokio.
        _ = self.flush().await;
        let file = self.0.as_fd().try_clone_to_owned();
        file.expect("a descriptor is left").into()
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self::from_std(file)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

crate::net::stream::reads!(File);

impl AsyncWrite for File {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        futures_io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        futures_io::AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // As in tokio, the file stays open.
        self.poll_flush(cx)
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        self.1 = Some(position);
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let position = self.1.unwrap_or(SeekFrom::Current(0));
        let reached = ready!(futures_io::AsyncSeek::poll_seek(
            Pin::new(&mut self.0),
            cx,
            position
        ));
        self.1 = None;
        Poll::Ready(reached)
    }
}

/// Returns whether a path exists.
///
/// # Errors
///
/// Returns the operating system's error if it does not say.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The options for opening a file.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions(async_fs::OpenOptions);

impl OpenOptions {
    /// Creates options that are all off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.0.open(path).await.map(File::new)
    }
}

/// The options for creating a directory.
#[derive(Debug, Default)]
pub struct DirBuilder(async_fs::DirBuilder);

impl DirBuilder {
    /// Creates options that are all off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.create(path).await
    }
}

/// Defines setters that pass their value on.
macro_rules! setters {
    ($Type:ident: $($name:ident: $Value:ty),*) => {
        impl $Type {
            $(
                #[doc = concat!("See the standard library's `", stringify!($name), "`.")]
                pub fn $name(&mut self, value: $Value) -> &mut Self {
                    self.0.$name(value);
                    self
                }
            )*
        }
    };
}

setters!(OpenOptions: read: bool, write: bool, append: bool, truncate: bool, create: bool,
    create_new: bool, mode: u32, custom_flags: i32);
setters!(DirBuilder: recursive: bool, mode: u32);

/// Returns the entries of a directory.
///
/// # Errors
///
/// Returns the operating system's error.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    async_fs::read_dir(path).await.map(ReadDir)
}

/// The entries of a directory.
#[derive(Debug)]
pub struct ReadDir(async_fs::ReadDir);

impl ReadDir {
    /// Returns the next entry, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    /// Polls for the next entry.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<DirEntry>>> {
        let entry = ready!(Pin::new(&mut self.0).poll_next(cx)).transpose();
        Poll::Ready(entry.map(|entry| entry.map(DirEntry)))
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry(async_fs::DirEntry);

impl DirEntry {
    /// Returns the path of the entry.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns the name of the entry in its directory.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// Returns the number of the inode.
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }

    /// Returns the metadata, without following a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.0.metadata().await
    }

    /// Returns what kind of file it is, without following a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn file_type(&self) -> io::Result<std::fs::FileType> {
        self.0.file_type().await
    }
}
