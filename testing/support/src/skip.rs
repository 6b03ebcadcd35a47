//! Tests that the system does not let run.

use std::{env, fs::OpenOptions, io::Write};

/// Prints that the test with this name is skipped, and why. Also appends the line to the file that
/// `TOURBILLON_SKIPPED` names, which CI prints.
pub fn skip_test(name: Option<&str>, why: &str) {
    eprintln!("skipped: {why}");
    let Some(file) = env::var_os("TOURBILLON_SKIPPED") else {
        return;
    };
    let line = format!("{}: {why}\n", name.unwrap_or("?"));
    let file = OpenOptions::new().append(true).create(true).open(file);
    // One write, so that no other process writes in between.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the file that TOURBILLON_SKIPPED names can be written");
}
