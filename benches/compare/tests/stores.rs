//! Tests of the command line of `stores`.

use std::process::Command;

use tourbillon_support::clients::output::fails_if_output_is_lost;

#[test]
fn a_table_that_is_lost_is_a_failure() {
    let stores = || Command::new(env!("CARGO_BIN_EXE_stores"));
    let quick = ["--most", "1000", "--ours", "--shape", "bursts"];
    fails_if_output_is_lost(stores().args(quick));
    fails_if_output_is_lost(stores().arg("--help"));
}
