//! Directories.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    future::poll_fn,
    io,
    os::unix::fs::{DirBuilderExt, DirEntryExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tourbillon::task::{JoinHandle, spawn_blocking};

use crate::blocking::run;

/// How many entries a blocking thread reads at a time.
const CHUNK: usize = 32;

/// The options for creating a directory.
#[derive(Clone, Debug, Default)]
pub struct DirBuilder {
    is_recursive: bool,
    mode: Option<u32>,
}

impl DirBuilder {
    /// Creates options that are all off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether directories above it are created, too.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.is_recursive = recursive;
        self
    }

    /// Sets the mode of new directories.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref().to_owned();
        let mut builder = fs::DirBuilder::new();
        builder.recursive(self.is_recursive);
        if let Some(mode) = self.mode {
            builder.mode(mode);
        }
        run(move || builder.create(path)).await
    }
}

/// Returns the entries of a directory.
///
/// # Errors
///
/// Returns the operating system's error.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    let chunk = run(move || Ok(Chunk::read(fs::read_dir(path)?))).await?;
    Ok(ReadDir(State::Idle(chunk)))
}

/// The entries of a directory.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct ReadDir(State);

#[derive(Debug)]
enum State {
    Idle(Chunk),
    Reading(JoinHandle<Chunk>),
}

/// Entries that were read, and the rest of the directory, if there may be more.
#[derive(Debug, Default)]
struct Chunk {
    entries: VecDeque<io::Result<DirEntry>>,
    rest: Option<fs::ReadDir>,
}

impl Chunk {
    /// Reads the next entries.
    fn read(mut dir: fs::ReadDir) -> Self {
        let mut chunk = Self::default();
        while chunk.entries.len() < CHUNK {
            let Some(entry) = dir.next() else {
                return chunk;
            };
            // After an error, leave it to the caller whether to go on.
            let is_error = entry.is_err();
            chunk.entries.push_back(entry.map(DirEntry::new));
            if is_error {
                break;
            }
        }
        chunk.rest = Some(dir);
        chunk
    }
}

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
        loop {
            match &mut self.0 {
                State::Idle(chunk) => {
                    if let Some(entry) = chunk.entries.pop_front() {
                        return Poll::Ready(entry.map(Some));
                    }
                    let Some(rest) = chunk.rest.take() else {
                        return Poll::Ready(Ok(None));
                    };
                    self.0 = State::Reading(spawn_blocking(|| Chunk::read(rest)));
                }
                State::Reading(job) => {
                    let read = ready!(Pin::new(job).poll(cx));
                    self.0 = State::Idle(Chunk::default());
                    self.0 = State::Idle(read?);
                }
            }
        }
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry {
    entry: Arc<fs::DirEntry>,
    /// Known from the directory itself on most file systems.
    file_type: Option<fs::FileType>,
}

impl DirEntry {
    /// Wraps an entry. This may block.
    fn new(entry: fs::DirEntry) -> Self {
        let file_type = entry.file_type().ok();
        Self {
            entry: Arc::new(entry),
            file_type,
        }
    }

    /// Returns the path of the entry.
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// Returns the name of the entry in its directory.
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// Returns the number of the inode.
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// Returns the metadata, without following a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn metadata(&self) -> io::Result<fs::Metadata> {
        let entry = self.entry.clone();
        run(move || entry.metadata()).await
    }

    /// Returns what kind of file it is, without following a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn file_type(&self) -> io::Result<fs::FileType> {
        match self.file_type {
            Some(file_type) => Ok(file_type),
            None => {
                let entry = self.entry.clone();
                run(move || entry.file_type()).await
            }
        }
    }
}
