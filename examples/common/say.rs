//! Output that ignores a closed stream, where `println!` and `eprintln!` would panic.

use std::io::{self, Write};

/// Prints a line and flushes it, so that a pipe gets it at once.
pub fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Prints a line to stderr.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
