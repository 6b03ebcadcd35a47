//! The embedded store.

use std::{
    collections::HashSet,
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use futures_lite::future::zip;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tourbillon::{Runtime, runtime::Builder, time::sleep};
use tourbillon_jobs::{
    Queue, QueueError,
    job::NewJob,
    sqlite::Sqlite,
    store::{Cancelled, Kinds, Span, Store, StoreError},
};

use crate::{
    cases,
    support::{self, Dir, HOUR, PATIENCE, holds, live, node, on_file, run, start},
};

#[test]
fn the_embedded_store_passes_all_cases() {
    on_file(async |queue| cases::all(queue).await);
}

#[test]
fn a_pause_outlives_the_process_and_needs_room() {
    let dir = Dir::new();
    let name = |number: usize| format!("queue-{number}-{}", "x".repeat(100));
    run(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        for number in 0..200 {
            let job = NewJob::new(format!("job-{number}"), Duration::ZERO, "");
            queue.schedule_job(job.queue(name(number))).await.unwrap();
        }
        queue.pause(name(0)).await.unwrap();
    });
    let size = fs::metadata(dir.store()).unwrap().len();
    run(async {
        let store = Sqlite::open_with_limit(dir.store(), Some(size)).unwrap();
        let queue = Queue::new(store);
        assert_eq!(queue.paused().await.unwrap(), [name(0)]);
        let mut refused = 1;
        loop {
            match queue.pause(name(refused)).await {
                Ok(()) => refused += 1,
                Err(QueueError::Store(StoreError::Full)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        // One for which there was no room is none.
        assert_eq!(queue.paused().await.unwrap().len(), refused);
        let store = queue.store();
        let lease = store.register(HOUR).await.unwrap().node;
        for (number, count) in [(0, 0), (refused - 1, 0), (refused, 1)] {
            let name = name(number);
            let held = store.hold(lease, Span::Due, &name, &Kinds::All, 10).await;
            assert_eq!(held.unwrap().len(), count, "{number}");
        }
    });
}

/// Runs a test on a store whose file has at most 256 KiB.
fn on_small_file(test: impl AsyncFnOnce(Queue<Sqlite>)) {
    let dir = Dir::new();
    run(async {
        let store = Sqlite::open_with_limit(dir.store(), Some(256 * 1024)).unwrap();
        test(Queue::new(store)).await;
    });
}

#[test]
fn jobs_outlive_the_process() {
    let dir = Dir::new();
    run(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        queue
            .schedule("later", Duration::from_millis(100), "text")
            .await
            .unwrap();
    });
    // The runtime and the store are gone.
    run(async {
        let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        assert_eq!(ran.recv().await.unwrap().payload, b"text");
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Blocks a thread of a runtime until the result is dropped.
fn block_a_thread_of(runtime: &Runtime) -> Sender<()> {
    let (opens, gate) = channel();
    let (blocks, blocked) = channel();
    drop(runtime.spawn(async move {
        blocks.send(()).unwrap();
        // It fails when the other end is dropped.
        let _ = gate.recv();
    }));
    blocked.recv().unwrap();
    opens
}

#[test]
fn the_store_ends_with_the_last_queue_and_node() {
    let dir = Dir::new();
    // The runtime of the queue goes on, and has no thread for its tasks.
    let queues = Builder::new().worker_threads(1).build().unwrap();
    let queue = {
        let _entered = queues.enter();
        Queue::new(Sqlite::open(dir.store()).unwrap())
    };
    run(async {
        let (_node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "job");
        live(&queue, 0).await;
    });
    let _opens = block_a_thread_of(&queues);
    drop(queue);
    drop(Sqlite::open(dir.store()).unwrap());
}

#[test]
fn the_jobs_of_a_node_whose_runtime_has_ended_are_another_nodes() {
    on_file(async |queue| {
        let later = Duration::from_secs(100);
        queue.schedule("later", later, "").await.unwrap();
        let hold = async || {
            let (node, _) = node(&queue, |node| node, |_| Ok(()));
            holds(&node).await;
        };
        thread::scope(|scope| {
            scope.spawn(|| run(hold()));
        });
        hold().await;
    });
}

#[test]
fn a_lane_that_was_empty_for_long_wakes_the_nodes() {
    on_file(async |queue| {
        let (store, window) = (&**queue.store(), Duration::from_millis(50));
        let node = store.register(HOUR).await.unwrap().node;
        queue.schedule("first", Duration::ZERO, "").await.unwrap();
        assert_eq!(support::hold(store, node, window, 9).await.len(), 1);
        queue.cancel("first").await.unwrap();
        // No look from here on finds the lane.
        assert!(support::hold(store, node, window, 9).await.is_empty());
        sleep(2 * window).await;
        let mut changes = store.changes();
        queue.schedule("second", Duration::ZERO, "").await.unwrap();
        changes.wait().await;
    });
}

#[test]
fn one_process_has_the_store() {
    let dir = Dir::new();
    let first = Sqlite::open(dir.store()).unwrap();
    assert!(matches!(Sqlite::open(dir.store()), Err(StoreError::InUse)));
    drop(first);
    Sqlite::open(dir.store()).unwrap();
}

/// Lets another process open a store. Returns its error, or nothing if it opened the store.
pub fn open_elsewhere(path: &Path) -> Option<String> {
    open_by(Command::new(env!("CARGO_BIN_EXE_delayed_jobs")), path)
}

/// Lets a process open a store, which `command` starts.
fn open_by(mut command: Command, path: &Path) -> Option<String> {
    let mut child = command
        .args(["--listen", "127.0.0.1:0", "--store"])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut error = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut error).unwrap();
        assert!(!child.wait().unwrap().success());
        return Some(error);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

#[track_caller]
fn is_in_use(path: &Path) {
    let here = Sqlite::open(path);
    assert!(matches!(here, Err(StoreError::InUse)), "{here:?}");
    let there = open_elsewhere(path).unwrap();
    assert!(there.contains("has this store open already"), "{there}");
}

#[test]
fn no_other_name_of_the_file_lets_a_second_process_in() {
    let dir = Dir::new();
    let link = dir.join("link.db");
    symlink("jobs.db", &link).unwrap();
    // The store is made by the name that does not exist yet.
    let store = Sqlite::open(&link).unwrap();
    let folder = dir.join("folder");
    symlink(".", &folder).unwrap();
    for name in [dir.store(), link.clone(), folder.join("link.db")] {
        is_in_use(&name);
    }
    // The file gets another name.
    let moved = dir.join("moved.db");
    fs::rename(dir.store(), &moved).unwrap();
    is_in_use(&moved);
    // Another file gets the name beside which the log is.
    is_in_use(&dir.store());
    drop(store);
    assert_eq!(open_elsewhere(&moved), None);
}

#[test]
fn a_file_with_hard_links_is_refused() {
    let dir = Dir::new();
    drop(Sqlite::open(dir.store()).unwrap());
    let other = dir.join("other.db");
    fs::hard_link(dir.store(), &other).unwrap();
    for name in [dir.store(), other.clone()] {
        let opened = Sqlite::open(name);
        assert!(matches!(opened, Err(StoreError::Linked(2))), "{opened:?}");
    }
    fs::remove_file(other).unwrap();
    Sqlite::open(dir.store()).unwrap();
}

#[test]
fn only_this_user_may_read_the_files() {
    let dir = Dir::new();
    let _store = Sqlite::open(dir.store()).unwrap();
    let mut files = 0;
    for file in fs::read_dir(dir.join("")).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
        files += 1;
    }
    assert_eq!(files, 4);
}

#[test]
fn a_store_that_is_refused_does_not_unlock_the_first() {
    let dir = Dir::new();
    let store = Sqlite::open(dir.store()).unwrap();
    for _ in 0..3 {
        assert!(matches!(Sqlite::open(dir.store()), Err(StoreError::InUse)));
    }
    // SQLite holds read locks on the file for as long as it is open. If the refused stores had
    // closed a descriptor of the file, there would be none.
    let id = fs::metadata(dir.store()).unwrap().ino();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let is_held = |line: &&str| line.contains("POSIX") && line.contains(&format!(":{id} "));
    assert!(locks.lines().any(|line| is_held(&line)), "{locks}");
    drop(store);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let dir = Dir::new();
    std::fs::write(dir.store(), "this is no database".repeat(100)).unwrap();
    assert!(matches!(
        Sqlite::open(dir.store()),
        Err(StoreError::Failed(_))
    ));
}

#[test]
fn a_full_store_refuses_and_loses_nothing() {
    on_small_file(async |queue| {
        let (node, mut ran) = cases::fill_and_run(&queue, 0, Duration::from_secs(1)).await;
        queue
            .schedule("there is room", Duration::ZERO, vec![1; 1000])
            .await
            .unwrap();
        assert_eq!(ran.recv().await.unwrap().key, "there is room");
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_request_for_which_there_is_no_room_refuses_no_other_one() {
    on_small_file(async |queue| {
        queue.schedule("waits", HOUR, "").await.unwrap();
        queue.schedule("runs", Duration::ZERO, "").await.unwrap();
        let store = queue.store();
        let node = store.register(HOUR).await.unwrap().node;
        let held = support::hold(&**store, node, Duration::ZERO, 10).await;
        store
            .begin(vec![start("runs", held[0].token)])
            .await
            .unwrap();
        // While the writer has much to do, the other requests come to wait for one commit.
        let busy = store.cancel((0..20_000).map(|n| format!("none-{n}")).collect());
        let large = NewJob::new("large", HOUR, vec![1; 300 * 1024]);
        let full = store.schedule(vec![large]);
        let one = store.cancel(vec!["waits".into()]);
        let other = store.cancel(vec!["runs".into()]);
        let ((busy, full), (one, other)) = zip(zip(busy, full), zip(one, other)).await;
        busy.unwrap();
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
        assert_eq!(one.unwrap(), [Cancelled::Cancelled]);
        assert_eq!(other.unwrap(), [Cancelled::WhileRunning]);
        assert_eq!(queue.count().await.unwrap().live, 0);
    });
}

#[test]
fn a_job_for_which_there_is_no_room_refuses_no_other_client() {
    on_small_file(async |queue| {
        let jobs: Vec<_> = (0..50)
            .map(|number| {
                let queue = queue.clone();
                let payload = vec![1; if number == 20 { 300 * 1024 } else { 10 }];
                let job = async move { queue.schedule(format!("{number}"), HOUR, payload).await };
                tourbillon::spawn(job)
            })
            .collect();
        for (number, job) in jobs.into_iter().enumerate() {
            let scheduled = job.await.unwrap();
            let is_full = matches!(scheduled, Err(QueueError::Store(StoreError::Full)));
            assert_eq!(is_full, number == 20, "{scheduled:?}");
            assert_eq!(scheduled.is_ok(), number != 20);
        }
        assert_eq!(queue.count().await.unwrap().live, 49);
    });
}

/// Lets no file of a process grow beyond `$1` blocks of 512 bytes, as if the disk were full.
const FULL: &str = "trap '' XFSZ; ulimit -S -f $1; shift; exec \"$@\"";

#[test]
fn a_full_disk_keeps_no_store_of_an_earlier_version_from_being_opened() {
    let (dir, crashed) = (Dir::new(), Dir::new());
    let base = rusqlite::Connection::open(dir.store()).unwrap();
    base.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
        .unwrap();
    base.execute_batch(include_str!("version_1/sqlite.sql"))
        .unwrap();
    for _ in 0..50 {
        base.execute("UPDATE jobs SET due = due + 1", []).unwrap();
    }
    // What a crash leaves behind: a log that has taken all room.
    for name in ["jobs.db", "jobs.db-wal"] {
        fs::copy(dir.join(name), crashed.join(name)).unwrap();
    }
    let log = fs::metadata(crashed.join("jobs.db-wal")).unwrap().len();
    drop(base);
    let blocks = log.div_ceil(512).to_string();
    let mut full = Command::new("sh");
    full.args(["-c", FULL, "sh", &blocks])
        .arg(env!("CARGO_BIN_EXE_delayed_jobs"));
    assert_eq!(open_by(full, &crashed.store()), None);
    let base = rusqlite::Connection::open(crashed.store()).unwrap();
    let version = base.pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(version, Ok(5_i64));
}

/// The variable that says that the files of this process may not grow beyond a limit.
const LIMITED: &str = "DURABLE_LIMITED";

#[test]
fn work_goes_on_when_a_full_disk_has_space_again() {
    if env::var_os(LIMITED).is_none() {
        // Run the test in a process of its own. There, a write fails if it would let a file grow
        // beyond 300 KiB.
        let name = "embedded::work_goes_on_when_a_full_disk_has_space_again";
        // Its output goes to pipes. The output of this process may be a large file already.
        let output = Command::new("sh")
            .args(["-c", FULL, "sh", "600"])
            .arg(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(LIMITED, "1")
            .output()
            .unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        assert!(output.status.success(), "{out}\n{err}");
        assert!(out.contains("1 passed"), "{out}");
        return;
    }
    on_file(async |queue| {
        let job = async |key: &str| {
            let payload = vec![1; 1000];
            queue.schedule(key, Duration::from_secs(1), payload).await
        };
        let mut acknowledged = HashSet::new();
        // One request can fail although there is some room: the store makes use of it after that.
        let mut failures = 0;
        while failures < 20 {
            let key = format!("job-{}", acknowledged.len());
            match job(&key).await {
                Ok(_) => {
                    acknowledged.insert(key);
                    failures = 0;
                }
                Err(QueueError::Store(StoreError::Full | StoreError::Failed(_))) => failures += 1,
                Err(error) => panic!("{error}"),
            };
        }
        assert!(acknowledged.len() > 20, "{acknowledged:?}");
        let refused = format!("job-{}", acknowledged.len());
        assert_eq!(queue.get(refused).await.unwrap(), None);
        assert_eq!(queue.count().await.unwrap().live, acknowledged.len() as u64);
        // The store may have no room to count the attempts. Then they wait for it.
        let (node, mut ran) = node(&queue, |node| node, |_| Ok(()));
        sleep(Duration::from_secs(2)).await;
        let limits = getrlimit(Resource::Fsize);
        let most = Rlimit {
            current: limits.maximum,
            ..limits
        };
        setrlimit(Resource::Fsize, most).unwrap();
        for _ in 0..acknowledged.len() {
            let attempt = ran.recv().await.unwrap();
            assert_eq!(attempt.number, 1);
            assert!(acknowledged.remove(&attempt.key), "{attempt:?}");
        }
        live(&queue, 0).await;
        for number in 0..100 {
            job(&format!("more-{number}")).await.unwrap();
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}
