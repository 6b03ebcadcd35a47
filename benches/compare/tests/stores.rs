//! Tests of the command line of `stores`.

#[path = "../../../tests/clients/output.rs"]
#[allow(dead_code, reason = "other programs use the rest")]
mod output;

use std::process::Command;

#[test]
fn a_table_that_is_lost_is_a_failure() {
    let stores = || Command::new(env!("CARGO_BIN_EXE_stores"));
    let quick = ["--most", "1000", "--ours", "--shape", "bursts"];
    output::fails_if_output_is_lost(stores().args(quick));
    output::fails_if_output_is_lost(stores().arg("--help"));
}
