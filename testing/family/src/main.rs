//! The program `tourbillon`, in a workspace whose tokio is the package in `crates/tokio`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tourbillon_cli::main()
}
