//! Output of a program: results on stdout, and what went wrong on stderr.
//!
//! - Results that cannot be written are lost. The program says so, and [`end`] makes its exit
//!   status a failure. A closed pipe is no error: its reader has all that it wanted. If stdout is
//!   closed from the start, Rust's standard library opens `/dev/null` in its place.
//! - Text that others have chosen, such as names and payloads, is shown by [`shown`]. Whatever a
//!   program prints, no control character but tabs and ends of lines reaches the terminal, and no
//!   character that it does not draw.

use std::{
    fmt::{self, Display, Write as _},
    io::{self, ErrorKind, Write as _},
    process::{ExitCode, Termination},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Whether results were lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints a line of results and flushes it, so that a pipe gets it at once.
pub fn say(line: impl Display) {
    print(format_args!("{line}\n"));
}

/// Prints results that have the ends of their lines, and flushes them.
pub fn print(text: impl Display) {
    let text = lines(&text.to_string());
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    check(written.and_then(|()| stdout.flush()));
}

/// Prints a line to stderr. Ignores a closed stderr, where `eprintln!` would panic.
pub fn complain(line: impl Display) {
    let _ = io::stderr().write_all(lines(&format!("{line}\n")).as_bytes());
}

/// Results for code that takes a [`Write`](io::Write). [`print()`] prints them as they are flushed.
#[derive(Default)]
pub struct Results(Vec<u8>);

impl io::Write for Results {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        print(String::from_utf8_lossy(&std::mem::take(&mut self.0)));
        Ok(())
    }
}

/// Takes note of a failed write to stdout, and complains about the first one.
pub fn check(written: io::Result<()>) {
    let lost = written
        .err()
        .filter(|error| error.kind() != ErrorKind::BrokenPipe);
    let is_first = lost.is_some() && !LOST.swap(true, Relaxed);
    if let (Some(error), true) = (lost, is_first) {
        complain(format_args!("cannot write to stdout: {error}"));
    }
}

/// Ends `main` of a program: complains about an error. Returns a failure if there is one, or if
/// results were lost.
pub fn end<T: Termination>(program: &str, ended: Result<T, impl Display>) -> ExitCode {
    let code = ended.map(T::report).unwrap_or_else(|error| {
        complain(format_args!("{program}: {error}"));
        ExitCode::FAILURE
    });
    match lost() {
        true => ExitCode::FAILURE,
        false => code,
    }
}

/// Returns whether results were lost.
pub fn lost() -> bool {
    LOST.load(Relaxed)
}

/// The characters that Unicode calls `Default_Ignorable_Code_Point`: a terminal that does not know
/// them draws nothing. With them, two names can look the same, or a text can carry another one.
///
/// From `DerivedCoreProperties.txt`, which has the same ranges in the versions 14 to 17. They
/// include characters that are not assigned yet.
const INVISIBLE: [(char, char); 17] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

fn is_invisible(c: char) -> bool {
    INVISIBLE
        .iter()
        .any(|&(first, last)| (first..=last).contains(&c))
}

/// Displays text that others have chosen as one line that a terminal only prints. Control
/// characters, and those that are invisible or change the direction, are escaped: `\u{1b}`. So are
/// the joiners and selectors of some emoji, which are then drawn in parts.
pub fn shown(text: &str) -> impl Display {
    Shown(text)
}

struct Shown<'a>(&'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| show(c, f))
    }
}

fn show(c: char, out: &mut impl fmt::Write) -> fmt::Result {
    // `escape_debug` of a text knows what can be printed, and keeps accents and the like behind
    // another character. It also escapes these three, which are harmless.
    if c.is_ascii_graphic() || c == ' ' || matches!(c, '"' | '\'' | '\\') {
        return out.write_char(c);
    }
    if is_invisible(c) {
        return write!(out, "{}", c.escape_unicode());
    }
    let mut bytes = [b'-'; 5];
    let end = 1 + c.encode_utf8(&mut bytes[1..]).len();
    let text = std::str::from_utf8(&bytes[..end]).expect("it was encoded as UTF-8");
    text.escape_debug()
        .skip(1)
        .try_for_each(|c| out.write_char(c))
}

/// Returns text of several lines, with all but tabs and the ends of lines as [`shown`] has it.
fn lines(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for c in text.chars() {
        let _ = match c {
            '\n' | '\t' => lines.write_char(c),
            c => show(c, &mut lines),
        };
    }
    lines
}
