//! The arguments of a program.

use std::{env, process};

use clap::Parser;

use crate::say::{self, shown};

/// Parses the arguments of the process. Ends the process if they are wrong, or if they ask for the
/// help or the version: with a failure if that could not be printed.
pub fn arguments<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        // The error quotes arguments. Others may have chosen them, such as names of files.
        let tame = env::args_os().map(|arg| shown(&arg.to_string_lossy()).to_string());
        let error = T::try_parse_from(tame).err().unwrap_or(error);
        // Without the colours of `error.print()`, which are escape sequences, too.
        let text = error.render();
        match error.use_stderr() {
            true => say::complain(text.to_string().trim_end()),
            false => say::print(text),
        }
        process::exit(if say::lost() { 1 } else { error.exit_code() })
    })
}
