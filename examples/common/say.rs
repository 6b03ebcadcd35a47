//! Saying something. Where nobody reads it any more there is no use in ending for it, as `println!` and
//! `eprintln!` would.

use std::io::{self, Write};

/// Prints a line at once, also into a pipe.
pub fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Prints a line of what is wrong.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
