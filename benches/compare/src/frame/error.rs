//! Why there is no table.

use std::{error, fmt, io, path::PathBuf};

#[derive(Debug)]
pub enum Error {
    UnknownWorkload(String),
    /// The path of this program cannot be had, so that it cannot run itself.
    NoProgram(io::Error),
    /// None of the systems asked for can do any of the workloads.
    NothingToDo,
    Write(PathBuf, io::Error),
    Encode(serde_json::Error),
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
