//! Errors that end the program before its report is complete.

use std::{error, fmt, io, path::PathBuf};

/// An error that ends the program with exit code 2.
#[derive(Debug)]
pub enum Error {
    /// No workload has this name.
    UnknownWorkload(String),
    /// The path of this executable is unknown, so the program cannot start its child processes.
    NoProgram(io::Error),
    /// None of the requested systems supports any of the requested workloads.
    NothingToDo,
    /// This file or directory cannot be written.
    Write(PathBuf, io::Error),
    /// The results cannot be encoded as JSON.
    Encode(serde_json::Error),
    /// The plot for this file cannot be drawn, for the given reason.
    Plot(PathBuf, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownWorkload(name) => write!(f, "no such workload: {name}"),
            Error::NoProgram(error) => write!(f, "where this program is: {error}"),
            Error::NothingToDo => f.write_str("none of these systems can do these workloads"),
            Error::Write(path, error) => write!(f, "cannot write {}: {error}", path.display()),
            Error::Encode(error) => write!(f, "the results as JSON: {error}"),
            Error::Plot(path, error) => write!(f, "cannot draw {}: {error}", path.display()),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::NoProgram(error) | Error::Write(_, error) => Some(error),
            Error::Encode(error) => Some(error),
            _ => None,
        }
    }
}
