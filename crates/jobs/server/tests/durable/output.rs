//! What the programs do if their output is lost, and if it holds text that others have chosen.

use std::{io::BufRead, process::Command};

use serde_json::json;
use tourbillon_support::clients::output::{
    HOSTILE, complains_tame, fails_if_output_is_lost, is_tame, server_fails_if_output_is_lost,
};

use crate::{
    program::{post, start},
    support::Dir,
};

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
    let (_program, addr, mut stdout) = start(&dir, &[]);
    let job = json!({ "key": "a\u{202e}b", "payload": HOSTILE, "in": "1ms" });
    post(&addr, &job.to_string());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
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
