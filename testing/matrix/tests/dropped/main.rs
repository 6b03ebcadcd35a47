//! Futures of the facade's own types that are dropped between polls, at each poll. The table is in
//! docs/reference/cancel-safety.md.

mod files;
mod processes;
mod sockets;
mod tasks;

use std::{
    env, fs,
    io::Write,
    process::{self, Stdio},
    time::Duration,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

/// A wait that only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many bytes of input a test has.
const INPUT: usize = 10_000;

/// Runs `cases` in a process of its own, and checks that they leave no descriptor and no child.
fn leaves_nothing(test: &str, cases: impl AsyncFnOnce()) {
    const ALONE: &str = "TOURBILLON_TEST_ALONE";
    if env::var_os(ALONE).is_none() {
        let mut alone = process::Command::new(env::current_exe().unwrap());
        alone.args(["--exact", test]).env(ALONE, "1");
        let mut alone = alone.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = alone.stdin.take().unwrap();
        // A test that reads no input leaves it in the pipe, or has closed the pipe.
        let _ = input.write_all(&[b'x'; INPUT]);
        drop(input);
        assert!(alone.wait().unwrap().success(), "`{test}` fails alone");
        return;
    }
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    // What a runtime opens once.
    runtime.block_on(async { drop(signal(SignalKind::user_defined2())) });
    let before = descriptors();
    runtime.block_on(cases());
    runtime.block_on(async {
        let is_clean = || {
            let has_none = children().is_none_or(|children| children.is_empty());
            has_none && descriptors() == before && runtime.metrics().num_alive_tasks() == 0
        };
        let waiting = async {
            while !is_clean() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("nothing stays");
    });
}

/// Returns the children of all threads: a child belongs to the thread that started it. Returns
/// `None` where the kernel does not list them.
fn children() -> Option<String> {
    let mut children = String::new();
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let list = thread.unwrap().path().join("children");
        match fs::read_to_string(&list) {
            Ok(of_thread) => children += of_thread.trim(),
            // The thread has ended. Its children went to another one.
            Err(_) if !list.parent().is_some_and(|thread| thread.exists()) => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

/// What comes about while a future waits that waits for nothing from outside.
async fn nothing() {}
