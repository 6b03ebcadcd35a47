//! Runs parts of a workload, each in a process of its own.
//!
//! There are two reasons. The heap that one part leaves behind would distort the next part. And
//! the processor time of a server is measured apart from that of its client.
//!
//! The process of a part runs this program with the same arguments. An environment variable holds
//! the name of the part.

use std::{
    env,
    ffi::OsString,
    process::{self, Command, Stdio},
};

use tourbillon_support::say::{self, say};

use crate::workload::{Figure, REFUSED, refuse};

/// Environment variable that names the part.
const PART: &str = "TOURBILLON_COMPARE_PART";

/// Returns the part that this process has to run, or `None` if it runs the whole workload.
pub fn asked() -> Option<String> {
    env::var(PART).ok()
}

/// Returns the command that runs a part. Its standard output is a pipe.
///
/// Ends this process with [`REFUSED`] if the path of the program is unknown.
pub fn command(part: &str) -> Command {
    let program = env::current_exe().unwrap_or_else(|error| refuse(error));
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = Command::new(program);
    command
        .args(args)
        .env(PART, part)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Runs each of `parts` in a process of its own, one after another, and returns all figures.
///
/// The names of the figures must be among `names`. In the process of a part, this function calls
/// `run` with the name of the part, prints the figures, and ends the process.
///
/// If a part ends with [`REFUSED`], this process does the same.
///
/// # Panics
///
/// Panics if a part fails, or if it prints anything but figures of these names.
pub fn each(
    parts: &[&'static str],
    names: &[&'static str],
    run: impl FnOnce(&'static str) -> Vec<Figure>,
) -> Vec<Figure> {
    if let Some(asked) = asked() {
        let part = parts.iter().find(|part| **part == asked);
        answer(&run(part.unwrap_or_else(|| panic!("no such part: {asked}"))));
    }
    let figures = parts.iter().flat_map(|part| alone(part, names));
    figures.collect()
}

/// Runs parts that have one figure each, by [`each`]. Each part has the name of its figure.
pub fn each_figure(names: &[&'static str], value: impl FnOnce(&'static str) -> f64) -> Vec<Figure> {
    each(names, names, |name| {
        let value = value(name);
        vec![Figure { name, value }]
    })
}

/// Runs a part in a process of its own, and returns its figures in the order of its output.
///
/// The names of the figures must be among `names`. Ends this process, or panics, like [`each`].
fn alone(part: &str, names: &[&'static str]) -> Vec<Figure> {
    let output = command(part).output().unwrap_or_else(|error| refuse(error));
    // `output` captures standard error, too. Pass it on: it has the reason for a failure.
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        match output.status.code() {
            Some(REFUSED) => process::exit(REFUSED),
            _ => panic!("part {part}: {}", output.status),
        }
    }
    let figure = |line: &str| {
        let (name, value) = line.split_once('\t')?;
        let name = names.iter().copied().find(|known| *known == name)?;
        let value = value.parse().ok()?;
        Some(Figure { name, value })
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| figure(line).unwrap_or_else(|| panic!("part {part}: no figure: {line}")))
        .collect()
}

/// Prints the figures of a part for the parent process, and ends this process.
fn answer(figures: &[Figure]) -> ! {
    for Figure { name, value } in figures {
        say(format_args!("{name}\t{value}"));
    }
    process::exit(say::lost().into())
}
