//! The disks of the hosts.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tourbillon::{task::spawn_blocking, time::sleep};
use tourbillon_sim::{Disk, Simulation, assert_sometimes, crash, random, restart, set_disk};

const DATA: &str = "/data";

fn below(end: usize) -> usize {
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

fn shown<T: std::fmt::Debug>(result: io::Result<T>) -> String {
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

fn copy(error: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}

/// A directory of the real system that is removed in the end.
struct Real(PathBuf);

impl Drop for Real {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tourbillon_sim::test(seeds = 200)]
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

#[tourbillon_sim::test(seeds = 100)]
fn what_was_synced_survives_a_crash(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    sim.host("store", || async {
        if let Ok(kept) = fs::read("/data/log") {
            // The first half was synced, and the second one was not.
            assert!(kept.len() >= 4_096, "{}", kept.len());
            assert!(kept[..4_096].iter().all(|byte| *byte == 1));
            let rest = &kept[4_096..];
            assert!(rest.iter().all(|byte| [0, 2].contains(byte)));
            assert_sometimes!(rest.is_empty(), "nothing of it is there");
            assert_sometimes!(rest == [2; 4_096], "all of it is there");
            let parts = rest.iter().filter(|byte| **byte == 2).count();
            assert_sometimes!(parts > 0 && parts < 4_096, "parts of it are there");
            return fs::write("/data/done", b"");
        }
        let mut file = File::create("/data/log")?;
        file.write_all(&[1; 4_096])?;
        file.sync_data()?;
        File::open(DATA)?.sync_all()?;
        file.write_all(&[2; 4_096])?;
        crash("store");
        Ok(())
    });
    sim.client("operator", || async {
        sleep(Duration::from_secs(1)).await;
        restart("store");
        sleep(Duration::from_secs(1)).await;
    });
}

/// Replaces a file as it should be done: a reader finds the old one or the new one.
#[tourbillon_sim::test(seeds = 100)]
fn a_file_is_replaced_whole(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    sim.host("store", || async {
        if let Ok(kept) = fs::read("/data/file") {
            assert!(kept == [1; 2_000] || kept == [2; 2_000], "{kept:?}");
            assert_sometimes!(kept == [1; 2_000], "it is the old one");
            assert_sometimes!(kept == [2; 2_000], "it is the new one");
        }
        let write = |number| {
            let mut file = File::create("/data/new")?;
            file.write_all(&[number; 2_000])?;
            file.sync_all()?;
            fs::rename("/data/new", "/data/file")
        };
        write(1)?;
        File::open(DATA)?.sync_all()?;
        write(2)?;
        crash("store");
        io::Result::Ok(())
    });
    sim.client("operator", || async {
        for _ in 0..3 {
            sleep(Duration::from_secs(1)).await;
            restart("store");
        }
        sleep(Duration::from_secs(1)).await;
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn names_come_to_the_disk_in_their_order(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    sim.host("store", || async {
        if Path::new("/data/first").exists() {
            let found = ["a", "b", "c"].map(|name| Path::new(DATA).join(name).exists());
            assert!(!found[1] || found[0], "{found:?}");
            assert!(!found[2] || found[1], "{found:?}");
            assert_sometimes!(found == [false; 3], "no name is there");
            assert_sometimes!(found == [true, false, false], "one name is there");
            assert_sometimes!(found == [true; 3], "all names are there");
            return Ok(());
        }
        File::create("/data/first")?;
        File::open(DATA)?.sync_all()?;
        for name in ["a", "b", "c"] {
            // To sync a file does not write its name.
            File::create(Path::new(DATA).join(name))?.sync_all()?;
        }
        crash("store");
        io::Result::Ok(())
    });
    sim.client("operator", || async {
        sleep(Duration::from_secs(1)).await;
        restart("store");
        sleep(Duration::from_secs(1)).await;
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

#[tourbillon_sim::test(seeds = 50)]
fn a_sync_that_failed_is_not_made_up_for(sim: &mut Simulation) {
    let mut bad = Disk::new();
    bad.sync_errors(0.5);
    sim.disk(DATA, bad);
    sim.host("store", || async {
        if let Ok(first) = fs::read("/data/file") {
            let kept = fs::read("/data/kept")?;
            assert_eq!(kept == b"1", first == [1; 100], "{kept:?} {first:?}");
            return Ok(());
        }
        let mut file = File::create("/data/file")?;
        file.write_all(&[1; 100])?;
        let is_kept = match file.sync_all() {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "EIO");
                false
            }
        };
        assert_sometimes!(is_kept, "the sync succeeds");
        assert_sometimes!(!is_kept, "the sync fails");
        // The system has nothing left to write.
        while file.sync_all().is_err() {}
        assert_eq!(fs::read("/data/file")?, [1; 100], "it is still read");
        set_disk("store", Disk::new());
        fs::write("/data/kept", if is_kept { b"1" } else { b"0" })?;
        File::open("/data/kept")?.sync_all()?;
        File::open(DATA)?.sync_all()?;
        crash("store");
        io::Result::Ok(())
    });
    sim.client("operator", || async {
        sleep(Duration::from_secs(1)).await;
        restart("store");
        sleep(Duration::from_secs(1)).await;
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
