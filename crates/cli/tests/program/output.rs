//! What each command does if its output is lost.

use std::fs;

use crate::{
    clients::{
        output::{fails_if_output_is_lost, server_fails_if_output_is_lost},
        tourbillon,
    },
    common::unix::Dir,
    hostile_pages::{send, serve, snapshot},
};

/// A storm that is over soon.
const STORM: [&str; 7] = [
    "storm", "--timers", "100", "--spread", "10ms", "--lead", "10ms",
];

#[test]
fn a_storm_whose_report_is_lost_fails() {
    fails_if_output_is_lost(tourbillon().args(STORM));
    fails_if_output_is_lost(tourbillon().args(STORM).args(["--format", "json"]));
}

#[test]
fn a_screen_that_is_lost_is_a_failure() {
    let addr = serve(|number, _, stream| {
        send(stream, snapshot(number, "x").to_string().as_bytes());
    });
    let once = ["--once", "--interval", "100ms"];
    fails_if_output_is_lost(tourbillon().arg("top").arg(addr.to_string()).args(once));
}

#[test]
fn a_trace_whose_words_are_lost_fails() {
    let directory = Dir::new();
    let path = directory.path("trace.json");
    let trace = r#"{ "tourbillon": { "recording": "light", "workers": 1, "events": 0, "late": [],
        "causes": [] } }"#;
    fs::write(&path, trace).unwrap();
    fails_if_output_is_lost(tourbillon().arg("trace").arg(&path));
}

#[test]
fn help_that_is_lost_is_a_failure() {
    for args in [&["--help"][..], &["--version"], &["storm", "--help"]] {
        fails_if_output_is_lost(tourbillon().args(args));
    }
}

#[test]
fn a_server_whose_output_is_lost_serves_and_fails_at_its_end() {
    server_fails_if_output_is_lost(tourbillon().args(["serve", "--listen", "127.0.0.1:0"]));
}
