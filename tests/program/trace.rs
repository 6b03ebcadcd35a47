//! `tourbillon trace`, and the traces that the program writes.

use std::{
    fs::{self, File},
    io::Read,
    net::Shutdown,
    path::Path,
    thread,
    time::Duration,
};

use tourbillon::{runtime::Builder, time::sleep};

use crate::{
    clients::{Server, connect, storm::write_trace, tourbillon},
    common::{eventually, unix::Dir},
};

const MS: Duration = Duration::from_millis(1);

/// Returns the words for a trace.
fn words(path: &Path) -> String {
    let output = tourbillon().arg("trace").arg(path).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_names_the_timer_its_cause_and_its_culprit() {
    let directory = Dir::new();
    let path = directory.path("trace.json");
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    eventually("the culprit is named", || {
        let waits = runtime.spawn(async { sleep(5 * MS).await });
        // The worker is idle when the job comes that blocks it.
        thread::sleep(MS);
        runtime.spawn(async { thread::sleep(20 * MS) });
        runtime.block_on(waits).unwrap();
        let snapshot = runtime.handle().flight_recorder().snapshot();
        snapshot.write_trace(File::create(&path).unwrap()).unwrap();
        let words = words(&path);
        let mut lines = words.lines();
        assert!(lines.next().unwrap().starts_with("workers: 1, events: "));
        words.contains("\nstuck-in-job ")
            && lines.any(|line| {
                line.starts_with("- a sleep of task ")
                    && line.contains(" behind task ")
                    && line.contains("(spawned at tests/program/trace.rs:")
                    && line.contains("there is no other worker")
            })
    });
}

#[test]
fn a_storm_writes_a_trace() {
    let directory = Dir::new();
    let path = directory.path("trace.json");
    write_trace("5k", &path);
    assert!(words(&path).contains(" (full recording), late timers: "));
}

#[test]
fn each_signal_writes_a_trace_beside_the_last_one() {
    let directory = Dir::new();
    let mut server = Server::run(
        tourbillon()
            .args(["serve", "--listen", "127.0.0.1:0", "--record", "full"])
            .current_dir(directory.path("")),
    );
    // A connection that ends has armed a timer.
    let mut stream = connect(&server);
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    for number in [1, 2] {
        server.signal(libc::SIGUSR2);
        let name = format!("tourbillon-{}-{number}.trace.json", server.pid());
        assert_eq!(server.complaint(), format!("trace: {name}\n"));
        assert!(words(&directory.path(&name)).contains(" (full recording)"));
    }
    server.signal(libc::SIGINT);
    let (status, _, err) = server.end();
    assert!(status.success(), "{err}");
}

#[test]
fn a_file_that_is_no_trace_is_refused() {
    let directory = Dir::new();
    let path = directory.path("other.json");
    fs::write(&path, "{\"traceEvents\": []}").unwrap();
    let missing = directory.path("missing.json");
    for (path, why) in [(path, "is no trace that"), (missing, "cannot read")] {
        let output = tourbillon().arg("trace").arg(&path).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(why) && output.stdout.is_empty(), "{err}");
    }
}
