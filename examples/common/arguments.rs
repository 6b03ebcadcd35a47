//! The arguments of a program.

use std::process;

use clap::Parser;

use crate::say;

/// Parses the arguments of the process. Ends the process if they are wrong, or if they ask for the
/// help or the version: with a failure if that could not be printed.
pub fn arguments<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        let printed = error.print();
        if !error.use_stderr() {
            say::check(printed);
        }
        process::exit(if say::lost() { 1 } else { error.exit_code() })
    })
}
