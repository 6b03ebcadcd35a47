//! Runs the simulation's program with the same arguments. `.ci/mutants --runtime` needs it, since
//! cargo-mutants judges a change by `cargo test`.

use std::{env, process};

fn main() {
    let status = process::Command::new(env!("CARGO_BIN_EXE_tourbillon-sim-tests"))
        .args(env::args_os().skip(1))
        .status();
    let status = status.expect("the program was built beside this one");
    process::exit(status.code().unwrap_or(1));
}
