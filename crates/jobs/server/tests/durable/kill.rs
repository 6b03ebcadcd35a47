//! Processes that are killed while they work. The program `torture` runs and judges them.

use std::process::Command;

#[test]
fn killed_processes_lose_nothing() {
    torture(&["embedded", "--rounds", "30"]);
}

#[test]
fn handlers_that_abort_their_process_run_as_often_as_allowed() {
    torture(&[
        "embedded", "--rounds", "10", "--abort", "100", "--hang", "70", "--large", "50",
    ]);
}

#[test]
fn a_full_disk_loses_nothing() {
    torture(&["embedded", "--rounds", "30", "--full", "100"]);
}

#[test]
fn a_process_that_nobody_kills_is_never_early() {
    torture(&["calm", "--jobs", "500", "--within", "1s"]);
}

/// Runs the program, which fails if a promise was broken.
#[track_caller]
pub fn torture(args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(text.contains("none lost, none early"), "{text}");
}
