//! Compares SQLite and redb in what the embedded store does: schedule, read the window, complete.
//!
//! Each commit is synced to the disk before the next one begins. Run it with
//! `cargo bench --bench embedded`; an argument names the directory of the files.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use rusqlite::{Connection, params};

const PRELOADED: u64 = 100_000;
const PAYLOAD: [u8; 64] = [7; 64];
const LENGTH: Duration = Duration::from_secs(4);

/// A job: when it is due, and its key.
type Job = (i64, String);

trait Disk {
    const NAME: &str;
    fn open(dir: &Path) -> Self;
    /// Adds and removes jobs in one synced transaction.
    fn commit(&mut self, added: &[Job], removed: &[Job]);
    /// Returns the earliest jobs.
    fn window(&mut self, most: usize) -> Vec<Job>;
}

struct Sqlite(Connection);

impl Disk for Sqlite {
    const NAME: &str = "SQLite";

    fn open(dir: &Path) -> Self {
        let base = Connection::open(dir.join("sqlite")).unwrap();
        base.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE jobs (key TEXT PRIMARY KEY, at INTEGER NOT NULL, payload BLOB NOT NULL)
                 WITHOUT ROWID;
             CREATE INDEX by_time ON jobs (at);",
        )
        .unwrap();
        Self(base)
    }

    fn commit(&mut self, added: &[Job], removed: &[Job]) {
        let change = self.0.transaction().unwrap();
        {
            let mut add = change
                .prepare_cached("INSERT INTO jobs VALUES (?, ?, ?)")
                .unwrap();
            for (at, key) in added {
                add.execute(params![key, at, PAYLOAD]).unwrap();
            }
            let mut remove = change
                .prepare_cached("DELETE FROM jobs WHERE key = ?")
                .unwrap();
            for (_, key) in removed {
                assert_eq!(remove.execute([key]).unwrap(), 1);
            }
        }
        change.commit().unwrap();
    }

    fn window(&mut self, most: usize) -> Vec<Job> {
        let mut find = self
            .0
            .prepare_cached("SELECT at, key, payload FROM jobs ORDER BY at LIMIT ?")
            .unwrap();
        find.query_map([most as i64], |row| {
            let _: Vec<u8> = row.get(2)?;
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect()
    }
}

const JOBS: TableDefinition<&str, (i64, &[u8])> = TableDefinition::new("jobs");
const BY_TIME: TableDefinition<(i64, &str), ()> = TableDefinition::new("by_time");

struct Redb(Database);

impl Disk for Redb {
    const NAME: &str = "redb";

    fn open(dir: &Path) -> Self {
        let base = Database::create(dir.join("redb")).unwrap();
        let change = base.begin_write().unwrap();
        change.open_table(JOBS).unwrap();
        change.open_table(BY_TIME).unwrap();
        change.commit().unwrap();
        Self(base)
    }

    fn commit(&mut self, added: &[Job], removed: &[Job]) {
        let change = self.0.begin_write().unwrap();
        {
            let mut jobs = change.open_table(JOBS).unwrap();
            let mut by_time = change.open_table(BY_TIME).unwrap();
            for (at, key) in added {
                jobs.insert(key.as_str(), (*at, &PAYLOAD[..])).unwrap();
                by_time.insert((*at, key.as_str()), ()).unwrap();
            }
            for (at, key) in removed {
                assert!(jobs.remove(key.as_str()).unwrap().is_some());
                by_time.remove((*at, key.as_str())).unwrap();
            }
        }
        // By default, redb syncs each commit.
        change.commit().unwrap();
    }

    fn window(&mut self, most: usize) -> Vec<Job> {
        let read = self.0.begin_read().unwrap();
        let jobs = read.open_table(JOBS).unwrap();
        let by_time = read.open_table(BY_TIME).unwrap();
        let found = by_time.iter().unwrap().take(most);
        found
            .map(|entry| {
                let (key, _) = entry.unwrap();
                let (at, key) = key.value();
                let job = jobs.get(key).unwrap().unwrap();
                assert_eq!(job.value().1, PAYLOAD);
                (at, key.to_owned())
            })
            .collect()
    }
}

/// A source of jobs. Their keys are not in the order of their arrival, like the keys of users.
struct Source {
    made: u64,
}

impl Source {
    fn take(&mut self, count: usize) -> Vec<Job> {
        let make = |_| {
            self.made += 1;
            let key = format!("{:016x}", self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (fastrand::i64(0..3_600_000_000), key)
        };
        (0..count).map(make).collect()
    }
}

fn print(name: &str, what: &str, size: usize, mut taken: Vec<Duration>, start: Instant) {
    let commits = taken.len() as f64 / start.elapsed().as_secs_f64();
    taken.sort_unstable();
    let at = |part: usize| taken[(taken.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "{name:<7} {what:<22} {size:>5} {:>10.0} {:>9.0} {:>8.2} {:>8.2}",
        commits * size as f64,
        commits,
        at(50),
        at(99),
    );
}

fn measure<D: Disk>(dir: &Path) {
    fastrand::seed(1);
    let mut disk = D::open(dir);
    let mut source = Source { made: 0 };
    for _ in 0..PRELOADED / 10_000 {
        disk.commit(&source.take(10_000), &[]);
    }
    for size in [1, 16, 256, 4096] {
        let start = Instant::now();
        let mut taken = Vec::new();
        while start.elapsed() < LENGTH {
            let jobs = source.take(size);
            let begin = Instant::now();
            disk.commit(&jobs, &[]);
            taken.push(begin.elapsed());
        }
        print(D::NAME, "schedule", size, taken, start);

        // Each commit is like that of a busy store: some jobs arrive while others are done.
        let start = Instant::now();
        let mut taken = Vec::new();
        let mut read = Vec::new();
        while start.elapsed() < LENGTH {
            let begin = Instant::now();
            let due = disk.window(size);
            read.push(begin.elapsed());
            let jobs = source.take(due.len());
            let begin = Instant::now();
            disk.commit(&jobs, &due);
            taken.push(begin.elapsed());
        }
        print(D::NAME, "schedule and complete", size, taken, start);
        let total: Duration = read.iter().sum();
        let each = total.as_secs_f64() * 1e6 / (read.len() * size) as f64;
        println!(
            "{:<7} {:<22} {size:>5} {each:>8.2} µs each",
            D::NAME,
            "read the window"
        );
    }
    drop(disk);
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap());
    let bytes: u64 = files
        .filter(|file| {
            file.file_name()
                .to_string_lossy()
                .starts_with(&D::NAME.to_lowercase())
        })
        .map(|file| file.metadata().unwrap().len())
        .sum();
    println!(
        "{:<7} files at the end: {:.1} MB\n",
        D::NAME,
        bytes as f64 / 1e6
    );
}

fn main() {
    let dir = env::args().skip(1).find(|word| !word.starts_with("--"));
    let dir = dir.map_or_else(env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("durable-embedded-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    println!("store   commit                  jobs     jobs/s commits/s   p50 ms   p99 ms");
    measure::<Redb>(&dir);
    measure::<Sqlite>(&dir);
    fs::remove_dir_all(&dir).unwrap();
}
