//! Parts of a workload that need a process of their own: the heap that one part leaves behind would
//! distort the next, and a server's processor time is counted apart from that of its client.
//!
//! A part is this program again, with the same arguments, and its name in the environment.

use std::{
    env,
    ffi::OsString,
    process::{self, Command, Stdio},
};

use crate::workload::{Figure, REFUSED, refuse};

const PART: &str = "TOURBILLON_COMPARE_PART";

/// Which part this process is for, if not for the whole.
pub fn asked() -> Option<String> {
    env::var(PART).ok()
}

/// This program again, for a part.
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

/// Does each of `parts` in a process of its own, one after another: all their figures, which are among `names`. (In the
/// process of a part: does that by `run`, and ends.)
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

/// Like `each`, for parts of one figure each.
pub fn each_figure(names: &[&'static str], value: impl FnOnce(&'static str) -> f64) -> Vec<Figure> {
    each(names, names, |name| {
        let value = value(name);
        vec![Figure { name, value }]
    })
}

/// Does a part in a process of its own; the figures, of these names, in the order in which it answered them.
fn alone(part: &str, names: &[&'static str]) -> Vec<Figure> {
    let output = command(part).output().unwrap_or_else(|error| refuse(error));
    // Standard error is captured as well.
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

/// Ends the process of a part: this is what came out.
fn answer(figures: &[Figure]) -> ! {
    for Figure { name, value } in figures {
        println!("{name}\t{value}");
    }
    process::exit(0)
}
