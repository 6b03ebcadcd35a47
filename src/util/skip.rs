//! Tests that the system does not let run. `tests/common` has the same for the other tests.

use std::{env, fs::OpenOptions, io::Write, thread};

/// Prints that the calling test is skipped, and why. Also appends the line to the file that
/// `TOURBILLON_SKIPPED` names.
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(file) = env::var_os("TOURBILLON_SKIPPED") else {
        return;
    };
    let line = format!("{}: {why}\n", thread::current().name().unwrap_or("?"));
    let file = OpenOptions::new().append(true).create(true).open(file);
    // One write, so that no other process writes in between.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the file that TOURBILLON_SKIPPED names can be written");
}
