//! What the programs do if their output is lost.

use std::process::Command;

use crate::{
    lost::{fails_if_output_is_lost, server_fails_if_output_is_lost},
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
