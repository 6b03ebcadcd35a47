//! Processes that fork.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::exit,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tourbillon::Runtime;
use tourbillon_jobs::{
    Queue, QueueError,
    sqlite::Sqlite,
    store::{Store, StoreError},
};
use tourbillon_support::process::alone;
#[cfg(any(feature = "postgres", feature = "redis"))]
use tourbillon_support::process::alone_as;

use crate::{
    embedded::open_elsewhere,
    support::{Dir, HOUR, PATIENCE, run, works},
};
#[cfg(any(feature = "postgres", feature = "redis"))]
use crate::{
    server::Server,
    shared::{connect, start},
};

/// Runs `child` in a fork of this process, and waits for its end.
#[allow(unsafe_code, reason = "the standard library cannot fork")]
fn fork(child: impl FnOnce()) {
    // Threads that have nothing to do hold no locks, which nobody would release in the child.
    thread::sleep(Duration::from_secs(1));
    // SAFETY: the process has a test, its runtimes, and threads of the test harness. These wait, and
    // hold neither a lock of the standard library nor of a runtime. The child does not return.
    match unsafe { libc::fork() } {
        -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
        0 => {
            let ended = catch_unwind(AssertUnwindSafe(child));
            exit(i32::from(ended.is_err()));
        }
        process => {
            let process = Pid::from_raw(process);
            let start = Instant::now();
            let status = loop {
                if let Some((_, status)) = waitpid(process, WaitOptions::NOHANG).unwrap() {
                    break status;
                }
                if start.elapsed() > 2 * PATIENCE {
                    kill_process(process.unwrap(), Signal::KILL).unwrap();
                }
                thread::sleep(Duration::from_millis(5));
            };
            assert_eq!(status.exit_status(), Some(0), "{status:?}");
        }
    }
}

/// Checks that a queue of the parent is refused in the child.
async fn is_refused<S: Store>(queue: &Queue<S>) {
    let is_forked = |error| matches!(error, QueueError::Store(StoreError::Forked));
    let scheduled = queue.schedule("child", HOUR, "").await;
    assert!(is_forked(scheduled.unwrap_err()));
    assert!(is_forked(queue.get("child").await.unwrap_err()));
    assert!(is_forked(queue.cancel("child").await.unwrap_err()));
}

#[test]
fn a_fork_leaves_the_embedded_store_to_its_parent() {
    alone(|| {
        let (dir, other) = (Dir::new(), Dir::new());
        let runtime = Runtime::new().unwrap();
        let mut queue = Some(runtime.block_on(async {
            let queue = Queue::new(Sqlite::open(dir.store()).unwrap());
            works(&queue).await;
            queue
        }));
        fork(|| {
            run(async {
                let queue = queue.take().unwrap();
                is_refused(&queue).await;
                // This is the last reference to the store.
                drop(queue);
                works(&Queue::new(Sqlite::open(other.store()).unwrap())).await;
            });
            let there = open_elsewhere(&dir.store());
            assert!(there.is_some_and(|error| error.contains("has this store open already")));
        });
        // The end of the child has not unlocked the file.
        let there = open_elsewhere(&dir.store());
        assert!(there.is_some_and(|error| error.contains("has this store open already")));
        runtime.block_on(works(&queue.unwrap()));
    });
}

/// A test of the stores on servers.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub fn a_fork_opens_a_store_of_its_own<S: Server>() {
    alone_as(
        &format!("{}::a_fork_opens_a_store_of_its_own", S::NAME),
        || {
            let Some(server) = start::<S>() else {
                return;
            };
            let runtime = Runtime::new().unwrap();
            let queue = runtime.block_on(async {
                let queue = connect::<S>(server.port()).await;
                works(&queue).await;
                queue
            });
            fork(|| {
                run(async {
                    is_refused(&queue).await;
                    works(&connect::<S>(server.port()).await).await;
                });
            });
            runtime.block_on(works(&queue));
        },
    );
}
