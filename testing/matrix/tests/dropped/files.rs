//! Files, directories and the standard streams.

use std::{
    cell::Cell,
    env,
    fs::Permissions,
    io::{self, SeekFrom},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
    time::SystemTime,
};

use tokio::{
    fs::{self, DirBuilder, File, FileTimes, OpenOptions},
    io::{AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt},
    runtime::Builder,
    sync::Mutex,
    task::yield_now,
    time::{sleep, timeout},
};
use tourbillon_support::dropped::in_each_way;

use crate::{INPUT, PATIENCE, leaves_nothing, nothing};

/// A directory that is removed when this is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("tourbillon-dropped-{name}-{}", process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Drops the future of `operation` in each way, after `before`. Without a poll it has done nothing,
/// and what has begun runs on.
async fn runs_on<T>(
    before: impl Fn(),
    operation: impl AsyncFn() -> io::Result<T>,
    is_done: impl Fn() -> bool,
) {
    in_each_way(async |way| {
        before();
        let done = way.run(operation(), nothing).await;
        let is_ready = done.map(Result::unwrap).is_some();
        let waiting = async {
            while is_done() != way.polls() {
                yield_now().await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("it ends");
        is_ready
    })
    .await;
}

/// Drops the future of `question`, which changes nothing, in each way.
async fn answers<T>(question: impl AsyncFn() -> io::Result<T>) {
    in_each_way(async |way| {
        let answer = way.run(question(), nothing).await;
        answer.map(Result::unwrap).is_some()
    })
    .await;
}

#[test]
fn files() {
    leaves_nothing("files::files", async || {
        let dir = Dir::new("files");
        let path = dir.path("file");
        let open = async || {
            std::fs::write(&path, "0123456789").unwrap();
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(&path).await.unwrap()
        };
        // What was read and not taken comes with the next read.
        in_each_way(async |way| {
            let mut file = open().await;
            let mut buf = [0; 4];
            let read = way.run(file.read(&mut buf), nothing).await;
            let is_ready = read.is_some();
            let n = read.map_or(0, Result::unwrap);
            let mut text = String::from_utf8(buf[..n].to_vec()).unwrap();
            file.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "0123456789");
            is_ready
        })
        .await;
        // A write takes bytes or does not.
        in_each_way(async |way| {
            let mut file = open().await;
            // The first write runs while the second one waits.
            file.write_all(b"abc").await.unwrap();
            let written = way.run(file.write(b"de"), nothing).await;
            let is_ready = written.is_some();
            let n = written.map_or(0, Result::unwrap);
            file.flush().await.unwrap();
            let expected: &[u8] = if n == 2 { b"abcde56789" } else { b"abc3456789" };
            assert_eq!(std::fs::read(&path).unwrap(), expected);
            is_ready
        })
        .await;
        in_each_way(async |way| {
            let mut file = open().await;
            file.write_all(b"abc").await.unwrap();
            let is_ready = way.run(file.flush(), nothing).await.is_some();
            file.flush().await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"abc3456789");
            is_ready
        })
        .await;
        // A seek that has begun is made.
        in_each_way(async |way| {
            let mut file = open().await;
            let sought = way.run(file.seek(SeekFrom::Start(7)), nothing).await;
            let is_ready = sought.is_some();
            assert_eq!(sought.map_or(7, Result::unwrap), 7);
            let position = file.stream_position().await.unwrap();
            assert_eq!(position, if way.polls() { 7 } else { 0 });
            is_ready
        })
        .await;
        // So is a change, before what comes next.
        in_each_way(async |way| {
            let mut file = open().await;
            let cut = way.run(file.set_len(3), nothing).await;
            let is_ready = cut.map(Result::unwrap).is_some();
            let mut text = String::new();
            file.read_to_string(&mut text).await.unwrap();
            let is_cut = text == "012";
            assert!(is_cut || text == "0123456789");
            // The first poll finds no lock and no operation before it.
            assert_eq!(is_cut, way.polls());
            is_ready
        })
        .await;
        let early = SystemTime::UNIX_EPOCH;
        let times = || FileTimes::new().set_accessed(early).set_modified(early);
        for change in 0..3 {
            in_each_way(async |way| {
                let mut file = open().await;
                let before = std::fs::metadata(&path).unwrap();
                let mode = if before.permissions().mode() & 0o7 == 0 {
                    0o604
                } else {
                    0o600
                };
                let changed = match change {
                    0 => {
                        let permissions = Permissions::from_mode(mode);
                        way.run(file.set_permissions(permissions), nothing).await
                    }
                    1 => way.run(file.set_times(times()), nothing).await,
                    _ => way.run(file.set_modified(early), nothing).await,
                };
                let is_ready = changed.map(Result::unwrap).is_some();
                // The read comes after the change.
                file.read_u8().await.unwrap();
                let after = std::fs::metadata(&path).unwrap();
                let is_changed = match change {
                    0 => after.permissions().mode() & 0o777 == mode,
                    _ => after.modified().unwrap() == early,
                };
                assert_eq!(is_changed, way.polls());
                is_ready
            })
            .await;
        }
        for operation in 0..4 {
            in_each_way(async |way| {
                let file = open().await;
                let is_ready = match operation {
                    0 => way.run(file.sync_all(), nothing).await.is_some(),
                    1 => way.run(file.sync_data(), nothing).await.is_some(),
                    2 => way.run(file.metadata(), nothing).await.is_some(),
                    _ => way.run(file.try_clone(), nothing).await.is_some(),
                };
                assert_eq!(file.metadata().await.unwrap().len(), 10);
                file.into_std().await;
                is_ready
            })
            .await;
        }
        in_each_way(async |way| {
            let mut file = open().await;
            file.write_all(b"abc").await.unwrap();
            way.run(file.into_std(), nothing).await.is_some()
        })
        .await;
    });
}

#[test]
fn paths() {
    leaves_nothing("files::paths", async || {
        let dir = Dir::new("paths");
        let path = dir.path("file");
        in_each_way(async |way| {
            let opened = way.run(File::create(&path), nothing).await;
            opened.map(Result::unwrap).is_some()
        })
        .await;
        answers(async || File::open(&path).await).await;
        answers(async || OpenOptions::new().read(true).open(&path).await).await;
        answers(async || fs::metadata(&path).await).await;
        answers(async || fs::symlink_metadata(&path).await).await;
        answers(async || fs::canonicalize(&path).await).await;
        answers(async || fs::try_exists(&path).await).await;
        answers(async || fs::read(&path).await).await;
        answers(async || fs::read_to_string(&path).await).await;
        let (other, sub) = (dir.path("other"), dir.path("sub"));
        let content = || std::fs::read_to_string(&path).unwrap();
        let clear = || {
            let _ = std::fs::remove_file(&other);
            let _ = std::fs::remove_dir_all(&sub);
            std::fs::write(&path, "old").unwrap();
        };
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let change = || fs::write(&path, "new");
        runs_on(clear, async || change().await, || content() == "new").await;
        runs_on(
            clear,
            async || File::create_new(&other).await,
            || is_there(&other),
        )
        .await;
        let is_copied = || std::fs::read_to_string(&other).is_ok_and(|text| text == "old");
        runs_on(clear, async || fs::copy(&path, &other).await, is_copied).await;
        runs_on(
            clear,
            async || fs::hard_link(&path, &other).await,
            || is_there(&other),
        )
        .await;
        runs_on(
            clear,
            async || fs::symlink(&path, &other).await,
            || is_there(&other),
        )
        .await;
        answers(async || fs::read_link(&other).await).await;
        runs_on(
            clear,
            async || fs::rename(&path, &other).await,
            || is_there(&other),
        )
        .await;
        clear();
        runs_on(
            clear,
            async || fs::remove_file(&path).await,
            || !is_there(&path),
        )
        .await;
        runs_on(
            clear,
            async || fs::create_dir(&sub).await,
            || is_there(&sub),
        )
        .await;
        let builder = DirBuilder::new();
        runs_on(
            clear,
            async || builder.create(&sub).await,
            || is_there(&sub),
        )
        .await;
        let with_sub = || {
            clear();
            std::fs::create_dir(&sub).unwrap();
        };
        runs_on(
            with_sub,
            async || fs::remove_dir(&sub).await,
            || !is_there(&sub),
        )
        .await;
        let remove_all = async || fs::remove_dir_all(&sub).await;
        runs_on(with_sub, remove_all, || !is_there(&sub)).await;
        let open_to_all = || {
            clear();
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        };
        let close = async || fs::set_permissions(&path, Permissions::from_mode(0o600)).await;
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode();
        runs_on(open_to_all, close, || mode() & 0o777 == 0o600).await;
        for number in 0..40 {
            std::fs::write(dir.path(&number.to_string()), "").unwrap();
        }
        in_each_way(async |way| {
            let listed = way.run(fs::read_dir(&dir.0), nothing).await;
            listed.map(Result::unwrap).is_some()
        })
        .await;
        // More entries than a thread reads at a time.
        in_each_way(async |way| {
            let mut entries = fs::read_dir(&dir.0).await.unwrap();
            let mut count = 0;
            let mut is_ready = true;
            loop {
                let entry = match way.run(entries.next_entry(), nothing).await {
                    Some(entry) => entry,
                    None => {
                        is_ready = false;
                        entries.next_entry().await
                    }
                };
                let Some(entry) = entry.unwrap() else { break };
                let file_type = way.run(entry.file_type(), nothing).await;
                assert!(file_type.is_none_or(|it| it.unwrap().is_file()));
                let metadata = way.run(entry.metadata(), nothing).await;
                is_ready &= metadata.map(Result::unwrap).is_some();
                count += 1;
            }
            assert_eq!(count, 41);
            is_ready
        })
        .await;
    });
}

#[test]
fn standard_streams() {
    leaves_nothing("files::standard_streams", async || {
        let (stdin, count) = (Mutex::new(tokio::io::stdin()), Cell::new(0));
        in_each_way(async |way| {
            let (mut buf, mut stdin) = ([0; 8], stdin.lock().await);
            let read = way.run(stdin.read(&mut buf), nothing).await;
            let is_ready = read.is_some();
            count.set(count.get() + read.map_or(0, Result::unwrap));
            is_ready
        })
        .await;
        let mut rest = Vec::new();
        stdin.lock().await.read_to_end(&mut rest).await.unwrap();
        assert_eq!(count.get() + rest.len(), INPUT);
        write_to(tokio::io::stdout).await;
        write_to(tokio::io::stderr).await;
    });
}

async fn write_to<W: AsyncWrite + Unpin>(open: impl Fn() -> W) {
    in_each_way(async |way| {
        let mut output = open();
        let written = way.run(output.write(b"\n"), nothing).await;
        let is_written = written.map(Result::unwrap).is_some();
        let flushed = way.run(output.flush(), nothing).await;
        output.flush().await.unwrap();
        is_written && flushed.map(Result::unwrap).is_some()
    })
    .await;
}

/// The directory of this test, which is one of its own.
#[test]
fn a_directory_that_is_made_is_whole() {
    let dir = Dir::new("made");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(in_each_way(async |way| {
        let path = dir.path("one/two/three");
        let _ = std::fs::remove_dir_all(dir.path("one"));
        let made = way.run(fs::create_dir_all(&path), nothing).await;
        let is_ready = made.map(Result::unwrap).is_some();
        let waiting = async {
            while way.polls() && !Path::exists(&path) {
                sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("it is made");
        is_ready
    }));
}
