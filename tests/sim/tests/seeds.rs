//! Runs some seeds as a test, for tools that run `cargo test`. `SEEDS` sets their number.
#![cfg(tourbillon_sim)]

use std::process::Command;

#[test]
fn seeds_pass() {
    let seeds = std::env::var("SEEDS").unwrap_or_else(|_| "1000".into());
    let program = env!("CARGO_BIN_EXE_tourbillon_sim");
    let status = Command::new(program).args(["--seeds", &seeds]).status();
    assert!(status.unwrap().success());
}
