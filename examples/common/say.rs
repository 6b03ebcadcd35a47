//! Saying something.

use std::io::{self, Write};

/// Prints a line at once, also into a pipe. Where nobody reads it there is no use in ending for it.
pub fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
