//! An open file.

use std::{
    fmt,
    fs::{self, FileTimes, Metadata, Permissions},
    future::poll_fn,
    io::{self, IoSlice, Seek, SeekFrom},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::SystemTime,
};

use real::{
    io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf},
    sync::{Mutex, Semaphore},
};

use super::OpenOptions;
use crate::blocking::{Buf, Job, MOST, run};

/// An open file.
///
/// A write returns when a blocking thread has the bytes, and runs even if the file is dropped. Its
/// error is returned by the next write or flush. `flush` waits until the bytes are written.
///
/// # Cancel safety
///
/// An operation that has begun runs to its end, though its future is dropped. What reads, writes or
/// changes the file waits for the operation before it, so the order stays that of the calls. A read
/// that is dropped loses no bytes: the next read returns them.
pub struct File {
    file: Arc<fs::File>,
    /// Methods that take `&self` lock it. The others have it to themselves.
    state: Mutex<State>,
    /// One permit for each operation that runs beside that of the state.
    beside: Arc<Semaphore>,
    max_buf_size: usize,
}

/// How many operations may run beside that of the state: more than a program has threads.
const MOST_BESIDE: u32 = 1 << 20;

#[derive(Default)]
struct State {
    job: Job<Ended>,
    /// The error of a write that ended while something else waited for it.
    write_error: Option<io::ErrorKind>,
    /// Where the last seek has ended.
    position: u64,
}

/// The result of an operation.
enum Ended {
    Read(io::Result<()>),
    Write(io::Result<()>),
    Seek(io::Result<u64>),
    /// Something else that changes the file.
    Change(io::Result<()>),
}

impl State {
    /// Waits for the end of the operation that runs, and takes note of its result.
    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Ended>>> {
        let ended = ready!(self.job.poll_end(cx))?;
        if let Some(Ended::Seek(Ok(position))) = ended {
            self.position = position;
        }
        Poll::Ready(Ok(ended))
    }

    /// Returns the error of an earlier write, once.
    fn take_write_error(&mut self) -> io::Result<()> {
        self.write_error
            .take()
            .map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.take_write_error()?;
        match ready!(self.poll_settle(cx))? {
            Some(Ended::Write(written)) => Poll::Ready(written),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Waits for the end of the operation that runs. The next write or flush returns its error.
    ///
    /// An error that is kept already does not end the wait: a read may run after the write that
    /// failed.
    async fn settle(&mut self) {
        let ended = poll_fn(|cx| self.poll_settle(cx)).await;
        if let Err(error) | Ok(Some(Ended::Write(Err(error)))) = ended {
            self.write_error.get_or_insert(error.kind());
        }
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::options().read(true).open(path).await
    }

    /// Opens a file for writing, and empties it. Creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = Self::options();
        options.write(true).create(true).truncate(true);
        options.open(path).await
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
    pub fn from_std(file: fs::File) -> Self {
        Self {
            file: Arc::new(file),
            state: Mutex::default(),
            beside: Arc::new(Semaphore::new(MOST_BESIDE as usize)),
            max_buf_size: MOST,
        }
    }

    /// Runs `f`, which changes the file, on a blocking thread, after the operation that runs. What
    /// comes later waits for it, even if this future is dropped.
    ///
    /// `f` also gets the bytes that were read ahead.
    async fn change(
        &self,
        f: impl FnOnce(&fs::File, &mut Buf) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let mut state = self.state.lock().await;
        state.settle().await;
        let buf = state.job.take();
        let file = self.file.clone();
        state
            .job
            .start(buf, move |buf| Ended::Change(f(&file, buf)));
        match poll_fn(|cx| state.poll_settle(cx)).await? {
            Some(Ended::Change(changed)) => changed,
            _ => unreachable!("the lock is held, so this is the operation that was started"),
        }
    }

    /// Runs `f`, which changes nothing that other operations see, on a blocking thread, after the
    /// operation that runs.
    async fn after<R: Send + 'static>(
        &self,
        f: impl FnOnce(&fs::File) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        self.state.lock().await.settle().await;
        self.beside(f).await
    }

    /// Runs `f`, which changes nothing that other operations see, on a blocking thread.
    async fn beside<R: Send + 'static>(
        &self,
        f: impl FnOnce(&fs::File) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let permit = self.beside.clone().acquire_owned().await;
        let file = self.file.clone();
        run(move || {
            let done = f(&file);
            // The holder of all permits has the only reference to the file.
            drop(file);
            drop(permit);
            done
        })
        .await
    }

    /// Waits until data and metadata are on the disk.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error. That of an earlier write is returned by the next
    /// write or flush.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.after(fs::File::sync_all).await
    }

    /// Waits until the data is on the disk.
    ///
    /// # Errors
    ///
    /// See [`sync_all`](File::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        self.after(fs::File::sync_data).await
    }

    /// Cuts or extends the file to `size` bytes. Bytes that were read ahead are forgotten.
    ///
    /// # Errors
    ///
    /// See [`sync_all`](File::sync_all).
    pub async fn set_len(&self, size: u64) -> io::Result<()> {
        self.change(move |mut file, buf| {
            // What was read ahead may lie behind the new end, so go back to where the reader is.
            let ahead = buf.len() as i64;
            buf.clear();
            if ahead > 0 {
                file.seek(SeekFrom::Current(-ahead))?;
            }
            file.set_len(size)
        })
        .await
    }

    /// Returns the metadata of the file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.beside(fs::File::metadata).await
    }

    /// Returns another handle of the open file, which shares its position.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn try_clone(&self) -> io::Result<Self> {
        let mut clone = Self::from_std(self.after(fs::File::try_clone).await?);
        clone.max_buf_size = self.max_buf_size;
        Ok(clone)
    }

    /// Waits for all operations that run, and returns the file of the standard library.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the file is closed when the operations have ended.
    pub async fn into_std(mut self) -> fs::File {
        self.state.get_mut().settle().await;
        // The operations of futures that were dropped run on.
        _ = self.beside.acquire_many(MOST_BESIDE).await;
        Arc::try_unwrap(self.file).expect("no operation has the file")
    }

    /// Returns the file of the standard library if no operation runs.
    ///
    /// # Errors
    ///
    /// Returns the file itself if an operation runs.
    #[allow(clippy::result_large_err, reason = "tokio returns the file, too")]
    pub fn try_into_std(self) -> Result<fs::File, Self> {
        match Arc::try_unwrap(self.file) {
            Ok(file) => Ok(file),
            Err(file) => Err(Self { file, ..self }),
        }
    }

    /// Sets the permissions of the file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.change(|file, _| file.set_permissions(permissions))
            .await
    }

    /// Sets times of the file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        // A write that runs would change the time after this.
        self.change(move |file, _| file.set_times(times)).await
    }

    /// Sets the time of the last change.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time)).await
    }

    /// Sets how many bytes one operation reads or writes at most. It is 2 MiB by default.
    ///
    /// # Panics
    ///
    /// Panics if `max_buf_size` is 0.
    #[track_caller]
    pub fn set_max_buf_size(&mut self, max_buf_size: usize) {
        // tokio's text.
        assert!(max_buf_size > 0, "`max_buf_size` must be greater than 0");
        self.max_buf_size = max_buf_size;
    }

    /// Returns how many bytes one operation reads or writes at most.
    pub fn max_buf_size(&self) -> usize {
        self.max_buf_size
    }

    /// Starts to write the bytes of `slices`, and returns how many.
    fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        slices: &mut dyn Iterator<Item = &[u8]>,
    ) -> Poll<io::Result<usize>> {
        let state = self.state.get_mut();
        state.take_write_error()?;
        if let Some(Ended::Write(Err(error))) = ready!(state.poll_settle(cx))? {
            return Poll::Ready(Err(error));
        }
        let mut buf = state.job.take();
        let ahead = buf.len() as i64;
        let n = buf.take_from(slices, self.max_buf_size);
        let file = self.file.clone();
        state.job.start(buf, move |buf| {
            // The file's position lies behind what was read ahead.
            let reached = match ahead {
                0 => Ok(0),
                ahead => (&*file).seek(SeekFrom::Current(-ahead)),
            };
            Ended::Write(reached.and_then(|_| buf.write_to(&*file)))
        });
        Poll::Ready(Ok(n))
    }
}

impl AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let state = this.state.get_mut();
        loop {
            let ended = ready!(state.poll_settle(cx))?;
            let mut buf = state.job.take();
            let read = match ended {
                Some(Ended::Read(read)) => Some(read),
                Some(Ended::Write(Err(error))) => {
                    state.write_error = Some(error.kind());
                    None
                }
                _ => None,
            };
            if read.is_some() || buf.len() > 0 || into.remaining() == 0 {
                buf.move_to(into);
                state.job = Job::Idle(buf);
                return Poll::Ready(read.unwrap_or(Ok(())));
            }
            let most = into.remaining().min(this.max_buf_size);
            let file = this.file.clone();
            state
                .job
                .start(buf, move |buf| Ended::Read(buf.read_from(&*file, most)));
        }
    }
}

impl AsyncSeek for File {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        let this = self.get_mut();
        let state = this.state.get_mut();
        let Some(buf) = state.job.idle() else {
            return Err(io::Error::other(
                "another operation of the file runs: call `poll_complete` before `start_seek`",
            ));
        };
        let mut buf = std::mem::take(buf);
        // The file's position lies behind what was read ahead.
        let ahead = buf.len() as i64;
        buf.clear();
        let file = this.file.clone();
        state.job.start(buf, move |_| {
            let position = match position {
                SeekFrom::Current(offset) => match offset.checked_sub(ahead) {
                    Some(offset) => Ok(SeekFrom::Current(offset)),
                    None => (&*file)
                        .seek(SeekFrom::Current(-ahead))
                        .map(|_| SeekFrom::Current(offset)),
                },
                position => Ok(position),
            };
            Ended::Seek(position.and_then(|position| (&*file).seek(position)))
        });
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let state = self.get_mut().state.get_mut();
        loop {
            match ready!(state.poll_settle(cx))? {
                Some(Ended::Seek(reached)) => return Poll::Ready(reached),
                Some(Ended::Write(Err(error))) => state.write_error = Some(error.kind()),
                Some(Ended::Write(Ok(())) | Ended::Read(_) | Ended::Change(_)) => {}
                None => return Poll::Ready(Ok(state.position)),
            }
        }
    }
}

impl AsyncWrite for File {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_all(cx, &mut [bytes].into_iter())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut slices = slices.iter().map(|slice| &**slice);
        self.get_mut().poll_write_all(cx, &mut slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().state.get_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // As in tokio, the file stays open.
        self.poll_flush(cx)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("tokio::fs::File")
            .field("std", &self.file)
            .finish()
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        Self::from_std(file)
    }
}

impl From<OwnedFd> for File {
    fn from(descriptor: OwnedFd) -> Self {
        Self::from_std(descriptor.into())
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(descriptor: RawFd) -> Self {
        // SAFETY: the caller owns the descriptor, and passes it on.
        Self::from_std(unsafe { fs::File::from_raw_fd(descriptor) })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
