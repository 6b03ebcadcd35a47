//! What a crash leaves of the disk of a host.

use std::{
    fs::{self, File},
    io::{self, IoSlice, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_sim::{Disk, Simulation, assert_sometimes, crash, restart, set_disk};

const DATA: &str = "/data";
/// The flag of `open`.
const O_DSYNC: i32 = 0o10_000;

/// Has a host with a disk call `program` with the number of its start, from 0 to `last`. It crashes
/// after each but the last one.
fn with_crashes(sim: &mut Simulation, disk: Disk, last: u64, program: fn(u64) -> io::Result<()>) {
    sim.disk(DATA, disk);
    let starts = Arc::new(AtomicU64::new(0));
    let ended = starts.clone();
    sim.host("store", move || {
        let start = starts.load(SeqCst);
        let starts = starts.clone();
        async move {
            program(start)?;
            starts.fetch_add(1, SeqCst);
            if start < last {
                crash("store");
            }
            io::Result::Ok(())
        }
    });
    sim.client("operator", move || {
        let ended = ended.clone();
        async move {
            for start in 0..=last {
                while ended.load(SeqCst) <= start {
                    sleep(Duration::from_millis(20)).await;
                }
                if start < last {
                    restart("store");
                }
            }
        }
    });
}

fn sync_names(path: &str) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a directory with a file, and syncs all of it.
fn make_synced(dir: &str) -> io::Result<()> {
    fs::create_dir(dir)?;
    let path = Path::new(dir).join("file");
    fs::write(&path, b"text")?;
    File::open(path)?.sync_all()?;
    sync_names(dir)?;
    sync_names(DATA)
}

/// Returns in which of two places a file is. It must be in one of them.
fn in_one_of(places: [&str; 2]) -> [bool; 2] {
    let found = places.map(|place| Path::new(place).exists());
    assert_ne!(found[0], found[1], "it is in one place");
    found
}

#[tourbillon_sim::test(seeds = 150)]
fn what_was_synced_survives_a_crash(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let mut file = File::create("/data/log")?;
            file.write_all(&[1; 4_096])?;
            file.sync_data()?;
            sync_names(DATA)?;
            return file.write_all(&[2; 1_100]);
        }
        let kept = fs::read("/data/log")?;
        assert_eq!(kept[..4_096], [1; 4_096]);
        let rest = &kept[4_096..];
        assert!(rest.iter().all(|byte| [0, 2].contains(byte)));
        assert_sometimes!(rest.is_empty(), "nothing of it is there");
        assert_sometimes!(rest == [2; 1_100], "all of it is there");
        let count = rest.iter().filter(|byte| **byte == 2).count();
        assert_sometimes!(
            count > 0 && count == rest.len() && count < 1_100,
            "its beginning"
        );
        assert_sometimes!(count > 0 && count < rest.len(), "parts of it are there");
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_file_that_was_cut_has_no_holes(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let mut file = File::create("/data/log")?;
            file.write_all(&[1; 4_000])?;
            file.sync_data()?;
            sync_names(DATA)?;
            file.set_len(1_000)?;
            return file.write_all(b"");
        }
        let kept = fs::read("/data/log")?;
        assert!(kept == [1; 4_000] || kept == [1; 1_000], "{kept:?}");
        assert_sometimes!(kept.len() == 4_000, "it is as long as before");
        assert_sometimes!(kept.len() == 1_000, "it was cut");
        Ok(())
    });
}

/// A file that is made shorter during a sync keeps what that sync writes.
#[tourbillon_sim::test(seeds = 50)]
fn a_file_is_cut_during_a_sync(sim: &mut Simulation) {
    let mut slow = Disk::new();
    slow.delay(Duration::from_millis(100)..Duration::from_millis(101));
    with_crashes(sim, slow, 1, |start| {
        if start == 0 {
            let file = Arc::new(File::create("/data/log")?);
            sync_names(DATA)?;
            file.write_all_at(&[1; 4_000], 0)?;
            file.sync_data()?;
            file.set_len(100)?;
            file.write_all_at(&[2; 3_900], 100)?;
            let syncs = file.clone();
            let sync = std::thread::spawn(move || syncs.sync_data());
            std::thread::sleep(Duration::from_millis(50));
            file.set_len(3_000)?;
            return sync.join().unwrap();
        }
        let kept = fs::read("/data/log")?;
        assert!([3_000, 4_000].contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept[..100], [1; 100]);
        assert!(kept[100..].iter().all(|byte| *byte == 2));
        Ok(())
    });
}

/// What was cut does not come back, though a sync of it failed.
#[tourbillon_sim::test(seeds = 50)]
fn a_sync_of_a_cut_fails(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let mut file = File::create("/data/log")?;
            file.write_all(&[1; 4_000])?;
            file.sync_data()?;
            sync_names(DATA)?;
            file.set_len(1_000)?;
            let mut bad = Disk::new();
            bad.sync_errors(1.0);
            set_disk("store", bad);
            assert!(file.sync_data().is_err());
            set_disk("store", Disk::new());
            file.set_len(4_000)?;
            return file.sync_data();
        }
        let kept = fs::read("/data/log")?;
        assert_eq!(kept, [[1; 1_000].as_slice(), &[0; 3_000]].concat());
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn the_system_may_write_an_earlier_text(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let file = File::create("/data/file")?;
            sync_names(DATA)?;
            for number in 1..=3 {
                file.write_all_at(&[number; 512], 0)?;
                if number == 1 {
                    file.sync_all()?;
                }
            }
            return Ok(());
        }
        let kept = fs::read("/data/file")?;
        assert!((1..=3).any(|number| kept == [number; 512]), "{kept:?}");
        assert_sometimes!(kept[0] == 1, "it is the one that was synced");
        assert_sometimes!(kept[0] == 2, "it is the second one");
        assert_sometimes!(kept[0] == 3, "it is the last one");
        Ok(())
    });
}

/// Replaces a file as it should be done: a reader finds the old one or the new one.
#[tourbillon_sim::test(seeds = 50)]
fn a_file_is_replaced_whole(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 3, |start| {
        if start > 0 {
            let kept = fs::read("/data/file")?;
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
        sync_names(DATA)?;
        write(2)
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn names_come_to_the_disk_in_the_order_of_their_directory(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            fs::create_dir("/data/other")?;
            sync_names(DATA)?;
            for name in ["a", "b", "c"] {
                // To sync a file does not write its name.
                File::create(Path::new(DATA).join(name))?.sync_all()?;
            }
            File::create("/data/other/d")?;
            fs::rename("/data/other/d", "/data/other/e")?;
            fs::hard_link("/data/other/e", "/data/other/f")?;
            // This does not write the names of `/data`.
            return sync_names("/data/other");
        }
        let found = ["a", "b", "c"].map(|name| Path::new(DATA).join(name).exists());
        assert!(!found[1] || found[0], "{found:?}");
        assert!(!found[2] || found[1], "{found:?}");
        assert_sometimes!(found == [false; 3], "no name is there");
        assert_sometimes!(found == [true, false, false], "one name is there");
        assert_sometimes!(found == [true; 3], "all names are there");
        assert!(!fs::exists("/data/other/d")?);
        assert_eq!(fs::metadata("/data/other/e")?.nlink(), 2);
        Ok(())
    });
}

/// Moves of directories must not make a circle.
#[tourbillon_sim::test(seeds = 50)]
fn a_moved_file_or_directory_is_in_one_place(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        let path = |name: &str| Path::new(DATA).join(name);
        if start == 0 {
            for name in ["a", "b", "c"] {
                fs::create_dir(path(name))?;
            }
            fs::write(path("a/file"), b"text")?;
            File::open(path("a/file"))?.sync_all()?;
            sync_names("/data/a")?;
            sync_names(DATA)?;
            fs::rename(path("a/file"), path("b/file"))?;
            fs::rename(path("a"), path("b/a"))?;
            fs::rename(path("b/a"), path("a"))?;
            return fs::rename(path("b"), path("a/b"));
        }
        let places = ["a/file", "b/file", "a/b/file", "b/a/file"];
        let found = places.map(|name| path(name).exists());
        let count = found.iter().filter(|found| **found).count();
        assert_eq!(count, 1, "{found:?}");
        assert!(path("c").exists());
        assert_sometimes!(found[0], "nothing is moved");
        assert_sometimes!(found[1], "the file is moved");
        assert_sometimes!(found[2], "all is moved");
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn a_file_is_not_lost_by_a_move_to_a_new_directory(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            fs::create_dir("/data/archive")?;
            make_synced("/data/log")?;
            fs::create_dir("/data/archive/new")?;
            fs::rename("/data/log/file", "/data/archive/new/file")?;
            if tourbillon_sim::random() % 2 == 0 {
                sync_names("/data/log")?;
            }
            return Ok(());
        }
        let found = in_one_of(["/data/log/file", "/data/archive/new/file"]);
        assert_sometimes!(found[0], "it is not moved");
        assert_sometimes!(found[1], "it is moved");
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 100)]
fn a_file_is_not_lost_with_the_directory_that_it_left(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            fs::create_dir("/data/kept")?;
            make_synced("/data/old")?;
            fs::rename("/data/old/file", "/data/kept/file")?;
            fs::remove_dir("/data/old")?;
            if tourbillon_sim::random() % 2 == 0 {
                sync_names(DATA)?;
            }
            return Ok(());
        }
        let found = in_one_of(["/data/old/file", "/data/kept/file"]);
        assert_sometimes!(!Path::new("/data/old").exists(), "the directory is removed");
        assert_sometimes!(found[0], "nothing is changed");
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_file_without_a_name_is_gone_after_a_crash(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let mut options = File::options();
            let mut file = options
                .read(true)
                .write(true)
                .create_new(true)
                .open("/data/file")?;
            file.write_all(b"text")?;
            file.sync_all()?;
            fs::remove_file("/data/file")?;
            assert_eq!(file.metadata()?.nlink(), 0);
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, 0)?;
            assert_eq!(&bytes, b"text");
            return sync_names(DATA);
        }
        assert_eq!(fs::read_dir(DATA)?.count(), 0);
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn a_sync_that_failed_is_not_made_up_for(sim: &mut Simulation) {
    let mut bad = Disk::new();
    bad.sync_errors(0.5);
    with_crashes(sim, bad, 1, |start| {
        if start == 0 {
            let mut file = File::create("/data/file")?;
            let other = File::open("/data/file")?;
            file.write_all(&[1; 100])?;
            let synced = file.sync_all();
            let is_kept = synced.is_ok();
            if let Err(error) = synced {
                assert_eq!(error.raw_os_error(), Some(5), "EIO");
            }
            assert_sometimes!(is_kept, "the sync succeeds");
            // The system has nothing left to write.
            while file.sync_all().is_err() {}
            set_disk("store", Disk::new());
            let is_reported = other.sync_all().is_err();
            assert!(is_kept || is_reported, "each open file reports it");
            other.sync_all()?;
            assert_eq!(fs::read("/data/file")?, [1; 100], "it is still read");
            fs::write("/data/kept", if is_kept { b"1" } else { b"0" })?;
            File::open("/data/kept")?.sync_all()?;
            return sync_names(DATA);
        }
        let (kept, first) = (fs::read("/data/kept")?, fs::read("/data/file")?);
        assert!(kept == b"0" || first == [1; 100]);
        assert_sometimes!(
            kept == b"0" && first == [1; 100],
            "it failed, and was written"
        );
        assert_sometimes!(kept == b"0" && first != [1; 100], "it was not written");
        Ok(())
    });
}

#[tourbillon_sim::test(seeds = 50)]
fn writes_of_a_file_that_syncs_them_survive(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let mut options = File::options();
            let mut file = options
                .create_new(true)
                .write(true)
                .custom_flags(O_DSYNC)
                .open("/data/file")?;
            sync_names(DATA)?;
            let parts = [[1; 300], [2; 300]];
            let slices = parts.each_ref().map(|part| IoSlice::new(part));
            assert_eq!(file.write_vectored(&slices)?, 600);
            return file.write_all_at(b"text", 600);
        }
        let kept = fs::read("/data/file")?;
        assert_eq!(kept, [&[1; 300][..], &[2; 300], b"text"].concat());
        Ok(())
    });
}

/// A sync that began earlier and ends later takes nothing back.
#[tourbillon_sim::test(seeds = 50)]
fn syncs_overlap(sim: &mut Simulation) {
    with_crashes(sim, Disk::new(), 1, |start| {
        if start == 0 {
            let file = Arc::new(File::create("/data/file")?);
            sync_names(DATA)?;
            let turns = Arc::new([const { AtomicU64::new(0) }; 2]);
            let threads = [1_u8, 2, 3].map(|number| {
                let (file, turns) = (file.clone(), turns.clone());
                std::thread::spawn(move || {
                    file.write_all_at(&[number; 100], u64::from(number) * 100)?;
                    let begun = turns[0].fetch_add(1, SeqCst);
                    file.sync_all()?;
                    io::Result::Ok(begun == turns[1].fetch_add(1, SeqCst))
                })
            });
            let mut in_order = true;
            for thread in threads {
                in_order &= thread.join().unwrap()?;
            }
            assert_sometimes!(!in_order, "they end in another order than they begin");
            return Ok(());
        }
        let kept = fs::read("/data/file")?;
        for number in 1..=3_u8 {
            assert_eq!(kept[number as usize * 100..][..100], [number; 100]);
        }
        Ok(())
    });
}
