//! Files and the standard streams, on Tourbillon under tokio's name.

use std::{
    env,
    future::poll_fn,
    io::{ErrorKind, Seek, SeekFrom, Write},
    path::PathBuf,
    pin::{Pin, pin},
    process::{self, Command, Stdio},
    sync::{Arc, Barrier, mpsc},
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use tokio::{
    fs::{self, File, OpenOptions},
    io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader},
    runtime::{Builder, Handle, Runtime},
    task::spawn_blocking,
    time::{Instant, sleep},
};

/// A directory that is removed when this is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("tourbillon-files-{name}-{}", process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_file_is_written_read_and_moved_within() {
    let dir = Dir::new("one");
    let path = dir.0.join("file");
    let mut file = File::create_new(&path).await.unwrap();
    file.write_all(b"hello world").await.unwrap();
    // What is written has arrived after the flush, and the file is open after a shutdown.
    file.flush().await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"hello world");
    file.shutdown().await.unwrap();
    assert_eq!(file.seek(SeekFrom::Start(6)).await.unwrap(), 6);
    let mut text = String::new();
    file.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "world");
    assert_eq!(file.stream_position().await.unwrap(), 11);
    // A clone shares the position.
    let mut clone = file.try_clone().await.unwrap();
    clone.rewind().await.unwrap();
    assert_eq!(file.stream_position().await.unwrap(), 0);
    let shared = &file;
    shared.set_len(5).await.unwrap();
    shared.sync_all().await.unwrap();
    assert_eq!(file.metadata().await.unwrap().len(), 5);
    assert_eq!(file.into_std().await.metadata().unwrap().len(), 5);

    let again = File::create_new(&path).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let mut options = OpenOptions::new();
    let mut appended = options.append(true).open(&path).await.unwrap();
    appended.write_all(b", you").await.unwrap();
    appended.flush().await.unwrap();
    assert_eq!(fs::read_to_string(&path).await.unwrap(), "hello, you");
}

#[test]
fn a_write_that_was_taken_is_done_though_all_is_dropped() {
    let dir = Dir::new("drop");
    let path = dir.0.join("file");
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut file = File::create(&path).await.unwrap();
        file.write_all(&[7; 100_000]).await.unwrap();
    });
    drop(runtime);
    assert_eq!(std::fs::read(&path).unwrap(), [7; 100_000]);
}

#[tokio::test]
async fn the_error_of_a_write_comes_with_the_next_operation_that_writes() {
    let dir = Dir::new("error");
    let path = dir.0.join("file");
    std::fs::write(&path, "hello").unwrap();
    // It was opened for reading only.
    let mut file = File::open(&path).await.unwrap();
    file.write_all(b"more").await.unwrap();
    let mut read = [0; 2];
    file.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"he");
    assert!(file.flush().await.is_err());
    file.flush().await.unwrap();
    file.write_all(b"more").await.unwrap();
    file.metadata().await.unwrap();
    assert!(file.write_all(b"more").await.is_err());
}

/// Begins to read 4 bytes, and stops to wait for them. The only blocking thread reads them later.
fn read_ahead(file: &mut File) {
    let (release, held) = mpsc::channel::<()>();
    spawn_blocking(move || held.recv());
    let mut room = [0; 4];
    let reading = pin!(file.read(&mut room)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(reading.is_pending());
    drop(release);
}

#[test]
fn reading_ahead_does_not_move_writes_and_seeks() {
    let dir = Dir::new("ahead");
    let path = dir.0.join("file");
    std::fs::write(&path, "0123456789").unwrap();
    let runtime = Builder::new_multi_thread().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).open(&path).await.unwrap();
        file.set_max_buf_size(4);
        read_ahead(&mut file);
        assert_eq!(file.read_u8().await.unwrap(), b'0');
        assert_eq!(file.seek(SeekFrom::Current(1)).await.unwrap(), 2);
        read_ahead(&mut file);
        assert_eq!(file.read_u8().await.unwrap(), b'2');
        // One write takes 4 bytes at most.
        assert_eq!(file.write(b"abcdef").await.unwrap(), 4);
        file.flush().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"012abcd789");
        read_ahead(&mut file);
        assert_eq!(file.read_u8().await.unwrap(), b'7');
        file.set_len(9).await.unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "8");
        assert!(file.try_into_std().is_ok());
    });
}

const THREADS: usize = 2;

/// Keeps the blocking threads of a runtime busy until it is dropped. Then they take jobs at once.
struct Busy {
    _ends: Vec<mpsc::Sender<()>>,
}

impl Busy {
    fn new() -> Self {
        let barrier = Arc::new(Barrier::new(THREADS + 1));
        let ends = (0..THREADS).map(|_| {
            let (sender, receiver) = mpsc::channel();
            let barrier = barrier.clone();
            spawn_blocking(move || {
                barrier.wait();
                receiver.recv()
            });
            sender
        });
        let _ends = ends.collect();
        barrier.wait();
        Self { _ends }
    }
}

/// Polls a future once, and drops it.
async fn begin<F: Future>(future: F) {
    let mut future = pin!(future);
    assert_pending(future.as_mut()).await;
}

/// Polls a future once.
async fn assert_pending<F: Future>(mut future: Pin<&mut F>) {
    let is_pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending);
}

fn with_two_blocking_threads(future: impl Future<Output = ()>) {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).max_blocking_threads(THREADS);
    builder.enable_all().build().unwrap().block_on(future);
}

#[test]
fn what_changes_a_file_comes_before_the_next_operation_though_it_is_dropped() {
    let dir = Dir::new("dropped");
    let path = dir.0.join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let early = SystemTime::UNIX_EPOCH;
    with_two_blocking_threads(async {
        let queue_depth = || {
            Handle::current()
                .metrics()
                .snapshot()
                .blocking_queue_depth()
        };
        for change in 0..3 {
            let mut options = OpenOptions::new();
            let mut file = options.read(true).write(true).open(&path).await.unwrap();
            let permissions = file.metadata().await.unwrap().permissions();
            let busy = Busy::new();
            begin(file.read(&mut [0; 10])).await;
            drop(busy);
            // The other bytes were read ahead.
            assert_eq!(file.read_u8().await.unwrap(), b'0');
            let busy = Busy::new();
            match change {
                0 => begin(file.set_len(10)).await,
                1 => begin(file.set_modified(early)).await,
                _ => begin(file.set_permissions(permissions)).await,
            }
            let mut rest = [0; 9];
            {
                let mut reading = pin!(file.read_exact(&mut rest));
                assert_pending(reading.as_mut()).await;
                // Two jobs would run at once, in any order.
                assert_eq!(queue_depth(), 1, "the read waits for the change");
                drop(busy);
                reading.await.unwrap();
            }
            assert_eq!(&rest, b"123456789");
        }
        let file = File::open(&path).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().modified().unwrap(), early);
    });
}

#[test]
fn the_standard_file_comes_back_after_operations_that_were_dropped() {
    let dir = Dir::new("into-std");
    let path = dir.0.join("file");
    with_two_blocking_threads(async {
        for operation in 0..10 {
            let mut file = File::create_new(&path).await.unwrap();
            std::fs::remove_file(&path).unwrap();
            let permissions = file.metadata().await.unwrap().permissions();
            let busy = Busy::new();
            match operation {
                0 => begin(file.set_len(7)).await,
                1 => begin(file.metadata()).await,
                2 => begin(file.sync_all()).await,
                3 => begin(file.sync_data()).await,
                4 => begin(file.set_permissions(permissions)).await,
                5 => begin(file.set_modified(SystemTime::now())).await,
                6 => begin(file.try_clone()).await,
                7 => begin(file.read(&mut [0; 8])).await,
                8 => assert_eq!(file.write(b"1234567").await.unwrap(), 7),
                _ => begin(file.seek(SeekFrom::Start(7))).await,
            }
            let file = file.try_into_std().expect_err("an operation has it");
            let mut file = pin!(file.into_std());
            assert_pending(file.as_mut()).await;
            drop(busy);
            let mut file = file.await;
            match operation {
                0 | 8 => assert_eq!(file.metadata().unwrap().len(), 7),
                9 => assert_eq!(file.stream_position().unwrap(), 7),
                _ => assert_eq!(file.metadata().unwrap().len(), 0),
            }
        }
    });
}

#[test]
fn an_operation_waits_for_a_read_though_the_error_of_a_write_is_kept() {
    let dir = Dir::new("error-kept");
    let path = dir.0.join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    with_two_blocking_threads(async {
        for operation in 0..3 {
            let mut file = File::open(&path).await.unwrap();
            assert_eq!(file.write(b"x").await.unwrap(), 1);
            // The write has failed when all threads are busy with something else.
            let busy = Busy::new();
            // This takes note of the error, and begins to read.
            begin(file.read(&mut [0; 4])).await;
            match operation {
                0 => {
                    let mut cut = pin!(file.set_len(3));
                    assert_pending(cut.as_mut()).await;
                    drop(busy);
                    assert_eq!(cut.await.unwrap_err().kind(), ErrorKind::InvalidInput);
                }
                1 => {
                    let mut sync = pin!(file.sync_all());
                    assert_pending(sync.as_mut()).await;
                    drop(busy);
                    sync.await.unwrap();
                }
                _ => {
                    let mut file = pin!(file.into_std());
                    assert_pending(file.as_mut()).await;
                    drop(busy);
                    assert_eq!(file.await.stream_position().unwrap(), 4);
                    continue;
                }
            }
            let error = file.flush().await.unwrap_err();
            assert_eq!(error.kind(), std::io::Error::from_raw_os_error(9).kind());
            file.flush().await.unwrap();
            assert_eq!(file.read_u8().await.unwrap(), b'0');
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_waits_for_files() {
    let dir = Dir::new("paused");
    let path = dir.0.join("file");
    let start = Instant::now();
    let writing = async {
        for _ in 0..20 {
            fs::write(&path, "hello").await.unwrap();
        }
        start.elapsed()
    };
    let sleeping = sleep(Duration::from_secs(1000));
    let (written, ()) = tokio::join!(writing, sleeping);
    assert_eq!(written, Duration::ZERO);
    assert_eq!(start.elapsed(), Duration::from_secs(1000));
}

#[tokio::test]
async fn directories_are_made_listed_and_removed() {
    let dir = Dir::new("two");
    let inner = dir.0.join("a/b");
    fs::create_dir_all(&inner).await.unwrap();
    fs::write(inner.join("one"), "1").await.unwrap();
    fs::copy(inner.join("one"), inner.join("two"))
        .await
        .unwrap();
    fs::symlink("one", inner.join("link")).await.unwrap();
    fs::rename(inner.join("two"), inner.join("three"))
        .await
        .unwrap();
    let mut entries = fs::read_dir(&inner).await.unwrap();
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().await.unwrap() {
        let is_link = entry.file_type().await.unwrap().is_symlink();
        found.push((entry.file_name().into_string().unwrap(), is_link));
    }
    found.sort();
    let expected = [("link", true), ("one", false), ("three", false)];
    assert_eq!(found, expected.map(|(name, link)| (name.to_owned(), link)));
    assert!(fs::try_exists(inner.join("one")).await.unwrap());
    assert!(!fs::try_exists(inner.join("two")).await.unwrap());
    fs::remove_dir_all(dir.0.join("a")).await.unwrap();
    let gone = fs::metadata(&inner).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

/// Set in the process that copies its lines.
const COPIES: &str = "TOURBILLON_COPIES_LINES";

#[test]
fn lines_of_the_standard_input_reach_the_standard_output() {
    if env::var_os(COPIES).is_some() {
        return copy();
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "lines_of_the_standard_input_reach_the_standard_output",
        ])
        .arg("--nocapture")
        .env(COPIES, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"first line\nsecond line\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("<first line>\n<second line>\n"), "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("2 lines\n"), "{errors}");
}

/// Copies the lines of the standard input, in angle brackets.
#[tokio::main(flavor = "current_thread")]
async fn copy() {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let (mut output, mut count) = (tokio::io::stdout(), 0);
    while let Some(line) = lines.next_line().await.unwrap() {
        let line = format!("<{line}>\n");
        output.write_all(line.as_bytes()).await.unwrap();
        count += 1;
    }
    output.flush().await.unwrap();
    let mut errors = tokio::io::stderr();
    let text = format!("{count} lines\n");
    errors.write_all(text.as_bytes()).await.unwrap();
    errors.flush().await.unwrap();
}
