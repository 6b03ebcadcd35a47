//! The disks of the hosts.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use tourbillon::{task::spawn_blocking, time::sleep};
use tourbillon_sim::{Disk, Simulation, random, set_disk};

pub(crate) const DATA: &str = "/data";

pub(crate) fn below(end: usize) -> usize {
    random() as usize % end
}

fn a_path(root: &Path) -> PathBuf {
    const NAMES: [&str; 7] = ["a", "b", "c", "d", "a/b", "a/c", "b/../d"];
    let mut path = root.join(NAMES[below(NAMES.len())]);
    if below(6) == 0 {
        path = path.join(NAMES[below(3)]);
    }
    if below(12) == 0 {
        path.push("");
    }
    path
}

pub(crate) fn shown<T: std::fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.raw_os_error()),
    }
}

/// All files and directories of a directory, with what they have.
fn tree(root: &Path, at: &Path, lines: &mut Vec<String>) -> io::Result<()> {
    let mut entries = fs::read_dir(at)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, meta) = (entry.path(), entry.metadata()?);
        let name = path.strip_prefix(root).unwrap().display().to_string();
        assert_eq!(entry.file_type()?.is_dir(), meta.is_dir());
        let links = meta.nlink();
        if meta.is_dir() {
            // Not all real file systems count the directories of a directory.
            lines.push(format!("{name}/"));
            tree(root, &path, lines)?;
        } else {
            let bytes = fs::read(&path)?;
            assert_eq!(bytes.len() as u64, meta.len());
            lines.push(format!("{name} {links} {bytes:?}"));
        }
    }
    Ok(())
}

/// A step of a program, for two directories: that of the real system and that of the disk.
type Step = Box<dyn Fn(&Path, &mut Vec<File>) -> String>;

/// Draws a step. It does the same in each directory, and returns what the calls return.
fn a_step() -> Step {
    let (one, other) = (a_path(Path::new("")), a_path(Path::new("")));
    let (number, len) = (below(8), below(2_000));
    let at = below(3_000) as u64;
    let bytes = vec![random() as u8; len];
    let flags = random();
    match below(20) {
        0..4 => Box::new(move |root, files| {
            let mut options = OpenOptions::new();
            options.read(flags & 1 != 0).write(flags & 2 != 0);
            options.append(flags & 12 == 12).truncate(flags & 48 == 48);
            options
                .create(flags & 64 != 0)
                .create_new(flags & 1_920 == 1_920);
            let opened = options.open(root.join(&one));
            let text = shown(opened.as_ref().map(drop).map_err(copy));
            files.extend(opened);
            text
        }),
        4 => Box::new(move |root, _| shown(fs::create_dir(root.join(&one)))),
        5 => Box::new(move |root, _| shown(fs::remove_file(root.join(&one)))),
        6 => Box::new(move |root, _| shown(fs::remove_dir(root.join(&one)))),
        7 | 8 => Box::new(move |root, _| shown(fs::rename(root.join(&one), root.join(&other)))),
        9 => Box::new(move |root, _| shown(fs::hard_link(root.join(&one), root.join(&other)))),
        10 => Box::new(move |root, _| match flags % 4 {
            0 => shown(fs::remove_dir_all(root.join(&one))),
            _ => shown(fs::exists(root.join(&one))),
        }),
        11 => Box::new(move |root, _| {
            let meta = fs::metadata(root.join(&one));
            shown(meta.map(|it| (it.is_dir(), if it.is_dir() { 0 } else { it.len() })))
        }),
        12 => Box::new(move |root, _| {
            let path = fs::canonicalize(root.join(&one));
            let real = fs::canonicalize(root).unwrap();
            shown(path.map(|path| path.strip_prefix(real).unwrap().to_owned()))
        }),
        13 => Box::new(move |root, _| shown(fs::copy(root.join(&one), root.join(&other)))),
        choice => Box::new(move |_, files| {
            if files.is_empty() {
                return String::new();
            }
            let place = number % files.len();
            let file = &mut files[place];
            match choice {
                14 => shown(file.write(&bytes)),
                15 => {
                    let mut buffer = vec![0; len];
                    let read = file.read(&mut buffer);
                    buffer.truncate(*read.as_ref().unwrap_or(&0));
                    format!("{} {buffer:?}", shown(read))
                }
                // A file system may number the entries of a directory as it likes.
                16 if file.metadata().unwrap().is_dir() => String::new(),
                16 => shown(match flags % 3 {
                    0 => file.seek(SeekFrom::Start(at)),
                    1 => file.seek(SeekFrom::End(-(at as i64 / 2))),
                    _ => file.seek(SeekFrom::Current(100 - at as i64 / 16)),
                }),
                17 => match flags % 3 {
                    0 => shown(file.set_len(at)),
                    1 => shown(file.sync_all()),
                    _ => shown(file.metadata().map(|it| (it.is_dir(), it.nlink() > 0))),
                },
                18 => match flags % 3 {
                    0 => shown(file.write_at(&bytes, at)),
                    1 => {
                        let mut buffer = vec![0; len];
                        let read = file.read_at(&mut buffer, at);
                        buffer.truncate(*read.as_ref().unwrap_or(&0));
                        format!("{} {buffer:?}", shown(read))
                    }
                    _ => {
                        let another = file.try_clone();
                        let text = shown(another.as_ref().map(drop).map_err(copy));
                        files.extend(another);
                        text
                    }
                },
                _ => {
                    files.swap_remove(place);
                    String::new()
                }
            }
        }),
    }
}

pub(crate) fn copy(error: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}

/// A directory of the real system that is removed in the end.
pub(crate) struct Real(pub(crate) PathBuf);

impl Drop for Real {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tourbillon_sim::test(seeds = 100)]
fn a_disk_does_what_the_system_does(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    let name = format!("tourbillon-sim-{}-{}", std::process::id(), sim.seed());
    let real = std::env::temp_dir().join(name);
    sim.client("a", move || {
        let real = Real(real.clone());
        async move {
            fs::create_dir(&real.0)?;
            let roots = [real.0.as_path(), Path::new(DATA)];
            let mut files = [Vec::new(), Vec::new()];
            for number in 0..200 {
                let step = a_step();
                let [one, other] = [0, 1].map(|which| step(roots[which], &mut files[which]));
                assert_eq!(one, other, "step {number}: the system, and the disk");
            }
            let [one, other] = roots.map(|root| {
                let mut lines = Vec::new();
                tree(root, root, &mut lines).map(|()| lines)
            });
            assert_eq!(one?, other?, "the system, and the disk");
            io::Result::Ok(())
        }
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn each_host_has_a_disk(sim: &mut Simulation) {
    sim.disk("/var/lib/store/", Disk::new());
    for name in ["a", "b"] {
        sim.client(name, move || async move {
            assert!(!Path::new("/var/lib/store/file").exists());
            fs::write("/var/lib/store/file", name)?;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(fs::read_to_string("/var/lib/store/file")?, name);
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
            File::options()
                .write(true)
                .open("/var/lib/store/file")?
                .set_modified(then)?;
            let meta = fs::metadata("/var/lib/store/file")?;
            assert_eq!(meta.modified()?, then);
            assert!(meta.created()? <= SystemTime::now());
            let error = fs::rename("/var/lib/store/file", "/tmp/file").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CrossesDevices);
            io::Result::Ok(())
        });
    }
}

#[tourbillon_sim::test(seeds = 30)]
fn a_full_disk_takes_no_more(sim: &mut Simulation) {
    let mut small = Disk::new();
    small.capacity(10_000);
    sim.disk(DATA, small);
    sim.client("a", || async {
        fs::write("/data/one", [1; 5_000])?;
        let error = fs::write("/data/two", [2; 9_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let part = fs::metadata("/data/two")?.len();
        assert!(
            part > 4_000 && part < 5_000,
            "what has room is written: {part}"
        );
        let file = File::open("/data/one")?;
        fs::remove_file("/data/one")?;
        let error = fs::write("/data/three", [3; 5_000]).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::StorageFull,
            "the file is still open"
        );
        drop(file);
        fs::write("/data/three", [3; 5_000])?;
        set_disk("a", Disk::new());
        fs::write("/data/two", [2; 100_000])
    });
}

#[tourbillon_sim::test(seeds = 30)]
fn a_slow_disk_keeps_no_other_thread_waiting(sim: &mut Simulation) {
    let mut slow = Disk::new();
    slow.delay(Duration::from_secs(10)..Duration::from_secs(20));
    sim.disk(DATA, slow);
    sim.client("a", || async {
        let begin = Instant::now();
        let sync = spawn_blocking(|| {
            let mut file = File::create("/data/file")?;
            file.write_all(b"text")?;
            file.sync_all()
        });
        sleep(Duration::from_secs(1)).await;
        assert!(begin.elapsed() < Duration::from_secs(2));
        sync.await.unwrap()?;
        assert!(begin.elapsed() >= Duration::from_secs(10));
        io::Result::Ok(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_file_is_locked(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    sim.client("a", || async {
        let tasks = [(); 3].map(|()| {
            spawn_blocking(|| {
                let file = OpenOptions::new()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open("/data/lock")?;
                file.lock()?;
                // Only one has the lock, so no addition is lost.
                let seen = fs::read("/data/number").unwrap_or_default().len();
                std::thread::sleep(Duration::from_millis(1));
                let other = File::open("/data/lock")?;
                assert!(other.try_lock_shared().is_err());
                fs::write("/data/number", vec![0; seen + 1])
            })
        });
        for task in tasks {
            task.await.unwrap()?;
        }
        assert_eq!(fs::read("/data/number")?.len(), 3);
        io::Result::Ok(())
    });
}
