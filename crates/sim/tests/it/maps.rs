//! Maps and locks of files of the disks.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::Path,
    ptr, slice,
    time::Duration,
};

use tourbillon::time::sleep;
use tourbillon_sim::{Disk, Simulation, assert_sometimes, crash, random, restart};

use crate::disk::{DATA, Real, below, copy, shown};

pub(crate) const PAGE: usize = 4_096;

/// A part of a file in memory.
pub(crate) struct Map {
    memory: *mut u8,
    at: usize,
    len: usize,
    writes: bool,
}

// SAFETY: the memory belongs to the value alone.
unsafe impl Send for Map {}

impl Map {
    pub(crate) fn new(
        file: &File,
        at: usize,
        len: usize,
        access: i32,
        flags: i32,
    ) -> io::Result<Self> {
        let (fd, offset) = (file.as_raw_fd(), at as libc::off_t);
        // SAFETY: the system chooses the address.
        let memory = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, fd, offset) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            memory: memory.cast(),
            at,
            len,
            writes: access & libc::PROT_WRITE != 0,
        })
    }

    /// Returns the bytes of it that a file of this length has.
    pub(crate) fn bytes(&mut self, len: u64) -> &mut [u8] {
        let len = (len as usize).saturating_sub(self.at).min(self.len);
        // SAFETY: it is mapped, and nobody else changes it meanwhile.
        unsafe { slice::from_raw_parts_mut(self.memory, len) }
    }

    fn sync(&self, flags: i32) -> io::Result<()> {
        // SAFETY: it is mapped.
        match unsafe { libc::msync(self.memory.cast(), self.len, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is mapped, and nobody looks at it any more.
        assert_eq!(unsafe { libc::munmap(self.memory.cast(), self.len) }, 0);
    }
}

fn lock(file: &File, command: i32, kind: i32, [whence, from, len]: [i64; 3]) -> String {
    let mut lock = libc::flock {
        l_type: kind as _,
        l_whence: whence as _,
        l_start: from,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the pointer is to a lock.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 if command == libc::F_GETLK => format!("{}", lock.l_type),
        0 => "locked".into(),
        _ => format!("{:?}", io::Error::last_os_error().raw_os_error()),
    }
}

/// A step of a program with one file and its maps, for that of the real system and that of the
/// disk.
type Step = Box<dyn Fn(&Path, &mut File, &mut Vec<Map>) -> String>;

/// Draws a step. It does the same with both files, and returns what the calls return.
fn a_step() -> Step {
    let (at, len, number) = (below(3 * PAGE), below(2 * PAGE), below(8));
    let (byte, flags) = (random() as u8, random());
    let place = [
        below(3) as i64,
        below(200) as i64 - 50,
        below(100) as i64 - 50,
    ];
    let accesses = [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE];
    match below(12) {
        0 => Box::new(move |root, file, _| {
            let mut options = File::options();
            match flags % 3 {
                0 => options.read(true),
                1 => options.write(true),
                _ => options.read(true).write(true),
            };
            let opened = options.open(root);
            let text = shown(opened.as_ref().map(drop).map_err(copy));
            if let Ok(opened) = opened {
                *file = opened;
            }
            text
        }),
        1 => Box::new(move |_, file, _| shown(file.write_at(&vec![byte; len], at as u64))),
        2 => Box::new(move |_, file, _| {
            let mut buffer = vec![0; len];
            let read = file.read_at(&mut buffer, at as u64);
            format!("{} {buffer:?}", shown(read))
        }),
        3 => Box::new(move |_, file, _| shown(file.set_len(at as u64))),
        4 | 5 => Box::new(move |_, file, maps| {
            let at = at / PAGE * PAGE + usize::from(flags % 16 == 0);
            let access = accesses[(flags >> 4) as usize % 2];
            let mapped = Map::new(file, at, len, access, libc::MAP_SHARED);
            let text = shown(mapped.as_ref().map(drop).map_err(copy));
            maps.extend(mapped);
            text
        }),
        6 => Box::new(move |_, file, _| {
            let [command, kind] = [
                [libc::F_SETLK, libc::F_SETLKW, libc::F_GETLK][flags as usize % 3],
                [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK, 7][(flags >> 8) as usize % 4],
            ];
            lock(file, command, kind, place)
        }),
        choice => Box::new(move |root, _, maps| {
            if maps.is_empty() {
                return String::new();
            }
            let place = number % maps.len();
            let size = fs::metadata(root).unwrap().len();
            let map = &mut maps[place];
            match choice {
                7 | 8 if map.writes => {
                    let bytes = map.bytes(size);
                    let from = at.min(bytes.len());
                    let to = (from + len / 8).min(bytes.len());
                    bytes[from..to].fill(byte);
                    String::new()
                }
                9 => shown(map.sync([libc::MS_SYNC, libc::MS_ASYNC][flags as usize % 2])),
                10 => {
                    maps.swap_remove(place);
                    String::new()
                }
                _ => format!("{:?}", map.bytes(size)),
            }
        }),
    }
}

#[tourbillon_sim::test(seeds = 100)]
fn a_map_does_what_the_system_does(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    let name = format!("tourbillon-sim-map-{}-{}", std::process::id(), sim.seed());
    let real = std::env::temp_dir().join(name);
    sim.client("a", move || {
        let real = Real(real.clone());
        async move {
            fs::create_dir(&real.0)?;
            let paths = [real.0.join("file"), Path::new(DATA).join("file")];
            let mut sides = Vec::new();
            for path in paths {
                fs::write(&path, [7; 2 * PAGE + 100])?;
                let file = File::options().read(true).write(true).open(&path)?;
                sides.push((path, file, Vec::new()));
            }
            for number in 0..150 {
                let step = a_step();
                let said: Vec<_> = sides
                    .iter_mut()
                    .map(|(path, file, maps)| step(path, file, maps))
                    .collect();
                assert_eq!(said[0], said[1], "step {number}: the system, and the disk");
            }
            let [one, other] = [0, 1].map(|side| fs::read(&sides[side].0));
            assert_eq!(one?, other?, "the system, and the disk");
            io::Result::Ok(())
        }
    });
}

/// A program may write to the rest of the last page of a file. That is no part of the file.
#[tourbillon_sim::test(seeds = 20)]
fn what_is_behind_the_end_of_a_file_stays_out_of_it(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    sim.client("a", || async {
        let path = Path::new("/data/file");
        fs::write(path, [1; 100])?;
        let file = File::options().read(true).write(true).open(path)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // A map that no system has room for leaves the file as it is.
        let error = Map::new(&file, 0, isize::MAX as usize, access, libc::MAP_SHARED);
        assert!(error.is_err());
        let mut map = Map::new(&file, 0, 100, access, libc::MAP_SHARED)?;
        map.len = PAGE;
        map.bytes(PAGE as u64).fill(2);
        file.set_len(200)?;
        map.bytes(PAGE as u64)[200..].fill(3);
        file.write_at(&[4], 300)?;
        let mut wanted = vec![2; 100];
        wanted.resize(300, 0);
        wanted.push(4);
        assert_eq!(fs::read(path)?, wanted);
        // The pages live as long as a map does.
        file.write_at(&[5], 0)?;
        assert_eq!(map.bytes(PAGE as u64)[0], 5);
        drop(map);
        let mut copy = Map::new(&file, 0, PAGE, access, libc::MAP_PRIVATE)?;
        copy.bytes(301)[0] = 6;
        assert_eq!((fs::read(path)?[0], copy.bytes(301)[300]), (5, 4));
        io::Result::Ok(())
    });
}

/// What is changed in a map is on the disk after `msync`. Before, a crash may leave it or not.
#[tourbillon_sim::test(seeds = 100)]
fn a_map_keeps_in_a_crash_what_was_synced(sim: &mut Simulation) {
    sim.disk(DATA, Disk::new());
    sim.host("store", || async {
        let path = Path::new("/data/file");
        if path.exists() {
            let bytes = fs::read(path)?;
            assert_eq!(bytes[0], 1, "it was synced");
            assert_sometimes!(bytes[PAGE] == 0, "what was not synced is lost");
            assert_sometimes!(bytes[PAGE] == 1, "what was not synced is kept");
            std::future::pending::<()>().await;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(2 * PAGE as u64)?;
        file.sync_all()?;
        File::open(DATA)?.sync_all()?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mut map = Map::new(&file, 0, 2 * PAGE, access, libc::MAP_SHARED)?;
        drop(file);
        map.bytes(PAGE as u64)[0] = 1;
        map.sync(libc::MS_SYNC)?;
        map.bytes(2 * PAGE as u64)[PAGE] = 1;
        sleep(Duration::from_secs(60)).await;
        io::Result::Ok(())
    });
    sim.client("operator", || async {
        sleep(Duration::from_secs(1)).await;
        crash("store");
        restart("store");
        sleep(Duration::from_secs(1)).await;
        io::Result::Ok(())
    });
}

/// A seed repeats what a program reads from `/dev/urandom`.
#[tourbillon_sim::test(seeds = 20)]
fn the_file_of_random_bytes_is_of_the_seed(sim: &mut Simulation) {
    sim.client("a", || async {
        let mut one = [0; 32];
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut one)?;
        let delay = u64::from_le_bytes(one[..8].try_into().unwrap()) % 1_000_000;
        // Another delay would be another run, and some seeds run twice and have to be equal.
        sleep(Duration::from_nanos(delay)).await;
        assert_ne!(one, [0; 32]);
        // As on Linux, it takes what is written, and is another descriptor's, too.
        let mut file = File::options().read(true).write(true).open("/dev/random")?;
        io::Write::write_all(&mut file, &[1, 2, 3])?;
        io::Read::read_exact(&mut file.try_clone()?, &mut one)?;
        io::Result::Ok(())
    });
}
