//! What the programs do if their output is lost, and if it holds text that others have chosen.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use tourbillon_support::clients::output::{
    HOSTILE, complains_tame, fails_if_output_is_lost, is_tame, server_fails_if_output_is_lost,
};

use crate::support::Dir;

#[test]
fn a_torture_whose_verdict_is_lost_fails() {
    let calm = ["calm", "--jobs", "10", "--within", "100ms"];
    fails_if_output_is_lost(Command::new(env!("CARGO_BIN_EXE_torture")).args(calm));
}

#[test]
fn a_server_whose_output_is_lost_serves_and_fails_at_its_end() {
    let dir = Dir::new();
    let mut server = Command::new(env!("CARGO_BIN_EXE_delayed_jobs"));
    server.args(["--listen", "127.0.0.1:0", "--store"]);
    server_fails_if_output_is_lost(server.arg(dir.store()));
}

#[test]
fn help_that_is_lost_is_a_failure() {
    for program in [
        env!("CARGO_BIN_EXE_delayed_jobs"),
        env!("CARGO_BIN_EXE_torture"),
    ] {
        fails_if_output_is_lost(Command::new(program).arg("--help"));
    }
}

#[test]
fn a_job_is_printed_tame() {
    let dir = Dir::new();
    let server = Command::new(env!("CARGO_BIN_EXE_delayed_jobs"))
        .args(["--listen", "127.0.0.1:0", "--store"])
        .arg(dir.store())
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Killed(server.unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut line = |what: &str| match lines.next() {
        Some(line) => line.unwrap_or_else(|error| panic!("{what}: {error}")),
        None => panic!("the program ends without {what}"),
    };
    let open = line("the line with its address");
    let Some(addr) = open.strip_prefix("open http://") else {
        panic!("no address: {open}");
    };
    let addr = addr.trim_end_matches('/');
    let job = json!({ "key": "a\u{202e}b", "payload": HOSTILE, "in": "1ms" }).to_string();
    let mut stream = TcpStream::connect(addr).expect("the program listens");
    // In one write: the server does not wait for long for the rest of a request.
    let request = format!(
        "POST /jobs HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{job}",
        job.len()
    );
    let sent = stream.write_all(request.as_bytes());
    sent.expect("the server takes the request");
    let mut answer = String::new();
    let received = stream.read_to_string(&mut answer);
    received.unwrap_or_else(|error| panic!("after {answer:?}: {error}"));
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    let line = line("the line of the job");
    is_tame(line.as_bytes());
    for shown in [
        "a\\u{202e}b (attempt",
        "\\u{1b}]0;owned\\u{7}\\u{9b}31m\\r\\nforged",
    ] {
        assert!(line.contains(shown), "{line}");
    }
}

#[test]
fn arguments_are_quoted_tame() {
    for program in [
        env!("CARGO_BIN_EXE_delayed_jobs"),
        env!("CARGO_BIN_EXE_torture"),
    ] {
        complains_tame(Command::new(program).arg(HOSTILE));
    }
    // There is no such directory.
    let dir = Dir::new();
    let store = dir.join(HOSTILE).join("jobs.db");
    let mut server = Command::new(env!("CARGO_BIN_EXE_delayed_jobs"));
    complains_tame(server.arg("--store").arg(store));
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
