//! The arguments of a program.

use std::{env, ffi::OsStr, process};

use clap::Parser;

use crate::say::{self, shown};

/// Parses the arguments of the process. Ends the process if they are wrong, or if they ask for the
/// help or the version: with a failure if that could not be printed.
pub fn arguments<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        // The error quotes arguments. Others may have chosen them, such as names of files.
        let error = T::try_parse_from(env::args_os().map(tame))
            .err()
            .unwrap_or(error);
        // Without the colours of `error.print()`, which are escape sequences, too.
        let text = error.render();
        match error.use_stderr() {
            true => say::complain(text.to_string().trim_end()),
            false => say::print(text),
        }
        process::exit(if say::lost() { 1 } else { error.exit_code() })
    })
}

/// Returns an argument, or the name of a file, as one line that a terminal only prints.
pub fn tame(text: impl AsRef<OsStr>) -> String {
    shown(&text.as_ref().to_string_lossy()).to_string()
}
