//! `tourbillon trace`, and the traces that the program writes.

use std::{
    fs::{self, File},
    io::Read,
    net::Shutdown,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tourbillon::{runtime::Builder, time::sleep};

use crate::{
    clients::{Server, connect, storm::write_trace, tourbillon},
    common::{eventually, skip, unix::Dir},
};

const MS: Duration = Duration::from_millis(1);

/// Returns what `tourbillon trace` prints for a trace.
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
        let snapshot = runtime.flight_recorder().snapshot();
        tourbillon_flight::write_trace(&snapshot, File::create(&path).unwrap()).unwrap();
        let words = words(&path);
        let mut lines = words.lines();
        assert!(lines.next().unwrap().starts_with("workers: 1, events: "));
        words.contains("\nstuck-in-job ")
            && lines.any(|line| {
                line.starts_with("- a sleep of task ")
                    && line.contains(" behind task ")
                    && line.contains(concat!("(spawned at ", file!(), ":"))
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

/// Returns what `/proc/stat` says, but with this many ticks of 10 ms of stolen time for each core.
fn with_stolen(stat: &str, ticks: u32) -> String {
    let mut text = String::new();
    for line in stat.lines() {
        let mut fields: Vec<_> = line.split_whitespace().collect();
        let ticks = ticks.to_string();
        if fields[0].starts_with("cpu") {
            fields[8] = &ticks;
        }
        text += &(fields.join(" ") + "\n");
    }
    text
}

/// Time that a hypervisor took is named. The test needs no hypervisor: it stops all threads, and
/// puts a file in the place of `/proc/stat` that reports this time as stolen.
#[test]
fn time_that_the_hypervisor_took_is_named() {
    let directory = Dir::new();
    let (stat, path) = (directory.path("stat"), directory.path("trace.json"));
    let real = fs::read_to_string("/proc/stat").unwrap();
    fs::write(&stat, with_stolen(&real, 0)).unwrap();
    let within = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.arg("--map-root-user").arg("--mount");
        unshare.args(["sh", "-c"]);
        unshare.arg(format!("mount --bind \"$0\" /proc/stat && exec {command}"));
        unshare.arg(&stat);
        unshare
    };
    if !within("true").status().is_ok_and(|it| it.success()) {
        return skip("this machine lets no program have mounts of its own");
    }
    let mut storm = within("\"$@\"")
        .arg(env!("CARGO_BIN_EXE_tourbillon"))
        .args([
            "storm", "--timers", "2k", "--spread", "1s", "--tasks", "0", "--trace",
        ])
        .arg(&path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = storm.id().cast_signed();
    let signal = |signal| {
        // SAFETY: the call has no pointers. The process is this one's child, not yet waited for.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0);
    };
    let mut ticks = 0;
    // Stop the storm for half of the time, until it is over.
    while storm.try_wait().unwrap().is_none() {
        signal(libc::SIGSTOP);
        thread::sleep(50 * MS);
        ticks += 5;
        fs::write(&stat, with_stolen(&real, ticks)).unwrap();
        signal(libc::SIGCONT);
        thread::sleep(50 * MS);
    }
    assert!(storm.wait().unwrap().success());
    let words = words(&path);
    assert!(words.contains("\nstolen "), "{words}");
}

#[test]
fn each_signal_writes_a_trace_beside_the_last_one() {
    let directory = Dir::new();
    let mut server = Server::run(
        tourbillon()
            .args(["serve", "--listen", "127.0.0.1:0", "--record", "full"])
            .current_dir(directory.path("")),
    );
    // This connection arms a timer before it ends.
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
