//! Tests that need a process of their own.

use std::{
    any::type_name,
    env,
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::HANGS;

/// The environment variable that tells a child process which test it runs.
const CHILD: &str = "TOURBILLON_ISOLATED_TEST";

/// Runs `body` in a process of its own. It is for tests that count threads or descriptors, lower
/// limits, raise signals, set the panic hook or the global subscriber, or may abort.
///
/// `body` is a closure that stands in the test itself: its type names the test. The child is this
/// test binary with a filter for this test alone.
#[track_caller]
pub fn alone<F: FnOnce()>(body: F) {
    alone_as(test_name::<F>(), body);
}

/// Like [`alone`], for a body that stands in a function which several tests call. `name` is that of
/// the calling test, with its modules.
#[track_caller]
pub fn alone_as(name: &str, body: impl FnOnce()) {
    if is_child(name) {
        body();
    } else {
        run_child(name);
    }
}

/// Returns the name of the test in which a closure of type `F` stands, with its modules.
pub fn test_name<F>() -> &'static str {
    let (test, _closure) = type_name::<F>()
        .split_once("::{{closure}}")
        .expect("a closure that stands in the test");
    let (_crate, name) = test.split_once("::").expect("a path begins with the crate");
    name
}

/// Returns whether this process is the child that runs the test `name`.
pub fn is_child(name: &str) -> bool {
    test_of_child().is_some_and(|child| child == name)
}

/// Returns the name of the test that this process runs, if it is a child.
pub fn test_of_child() -> Option<String> {
    env::var(CHILD).ok()
}

/// Returns the command that starts this test binary as the child that runs the test `name`.
/// [`is_child`] tells the test that it runs in the child.
///
/// `TOURBILLON_TEST_RUNNER` names a program that runs the binary, for example an emulator.
pub fn child(name: &str) -> Command {
    let binary = env::current_exe().expect("a test binary has a path");
    let runner = env::var_os("TOURBILLON_TEST_RUNNER");
    let mut child = Command::new(runner.as_deref().unwrap_or(binary.as_os_str()));
    // The runner's first argument is the program.
    child.args(runner.map(|_| &binary));
    child
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, name);
    child
}

/// Runs the test `name` in a child process. Panics with the child's output if the test fails.
#[track_caller]
fn run_child(name: &str) {
    let mut child = child(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary can be started");
    let out = collect(child.stdout.take().expect("piped"));
    let err = collect(child.stderr.take().expect("piped"));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break Some(status);
        }
        if start.elapsed() > HANGS {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            break None;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let out = out.join().expect("reads to the end");
    let err = err.join().expect("reads to the end");
    // A name that does not exist would run nothing, and succeed.
    let ran = out.contains("test result: ok. 1 passed");
    for line in err.lines().filter(|line| line.starts_with("skipped")) {
        eprintln!("{line}");
    }
    assert!(
        status.is_some_and(|status| status.success()) && ran,
        "the test `{name}` {}, in a process of its own\n--- stdout\n{out}\n--- stderr\n{err}",
        match status {
            Some(status) => format!("ended with {status}"),
            None => "hung".to_owned(),
        }
    );
}

/// Reads `from` to its end on a thread of its own.
fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // On an error, what was read until then is still worth showing.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
