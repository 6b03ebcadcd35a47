//! The program `tourbillon`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tourbillon_cli::main()
}
