//! What can go wrong, said in types.

use std::{error::Error, fmt, io};

/// Why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// `worker_threads(0)`: a runtime needs at least one.
    ZeroWorkers,
    /// `helpers` from more to fewer, or of more than a runtime can count.
    Helpers {
        /// The lower bound.
        least: usize,
        /// The upper bound.
        most: usize,
        /// The most that there may be.
        max: usize,
    },
    /// `max_blocking_threads(0)`: what is given to `spawn_blocking` would never run.
    ZeroBlockingThreads,
    /// More workers than a runtime can count.
    TooManyWorkers {
        /// How many were asked for.
        asked: usize,
        /// The most that there may be.
        max: usize,
    },
    /// An interval of the scheduler was given as zero.
    ZeroInterval {
        /// The builder's method.
        option: &'static str,
    },
    /// `stall_threshold(Duration::ZERO)`: each job would be reported.
    ZeroStallThreshold,
    /// A thread's name has a NUL byte in it.
    ThreadName {
        /// The name.
        name: String,
    },
    /// A core was asked for that the process may not use.
    CoreNotAllowed {
        /// The core asked for.
        core: usize,
        /// The cores of the process's affinity mask.
        allowed: Vec<usize>,
    },
    /// The system refused a descriptor or a thread.
    Os {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroWorkers => {
                write!(f, "a runtime of 0 worker threads: there must be at least 1")
            }
            Self::Helpers { least, most, max } => {
                write!(
                    f,
                    "`helpers({least}..={most})`: from fewer to more, and at most {max}"
                )
            }
            Self::ZeroBlockingThreads => {
                write!(
                    f,
                    "`max_blocking_threads(0)`: there must be room for at least 1"
                )
            }
            Self::TooManyWorkers { asked, max } => {
                write!(
                    f,
                    "a runtime of {asked} worker threads: there may be at most {max}"
                )
            }
            Self::ZeroInterval { option } => {
                write!(f, "`{option}(0)`: an interval is at least 1 job")
            }
            Self::ZeroStallThreshold => {
                write!(
                    f,
                    "`stall_threshold(0)`: each job takes longer (`Duration::MAX` reports none)"
                )
            }
            Self::ThreadName { name } => {
                write!(f, "the thread name {name:?} has a NUL byte in it")
            }
            Self::CoreNotAllowed { core, allowed } => {
                write!(
                    f,
                    "core {core} is not among those that this process may use: {allowed:?}"
                )
            }
            Self::Os { what, source } => {
                write!(f, "the system gave no {what}: {source}")?;
                match source.raw_os_error() {
                    Some(libc::EMFILE) => write!(f, " (raise the process's limit, `ulimit -n`)"),
                    Some(libc::ENFILE) => write!(f, " (raise the system's limit, `fs.file-max`)"),
                    Some(libc::EAGAIN) => write!(f, " (raise the limit of threads, `ulimit -u`)"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Os { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::Os { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

/// Why a timer was not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError {
    /// As many timers are pending as [`Builder::max_timers`](crate::runtime::Builder::max_timers)
    /// allows.
    Full {
        /// The bound.
        max_timers: usize,
    },
    /// A recurring timer was given a period of zero.
    ZeroPeriod,
    /// A recurring timer was told to run not even once.
    ZeroTimes,
    /// A timer was to wait on a worker that the runtime does not have.
    NoSuchWorker {
        /// The number asked for.
        worker: usize,
        /// How many workers there are; they are numbered from 0.
        workers: usize,
    },
    /// The runtime has been shut down.
    Shutdown,
    /// The calling thread is not in the context of a runtime.
    NoRuntime,
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { max_timers } => {
                write!(
                    f,
                    "{max_timers} timers are pending, which is the bound (`max_timers`)"
                )
            }
            Self::ZeroPeriod => write!(f, "a period of zero: it must be at least 1 ns"),
            Self::ZeroTimes => write!(f, "`times(0)`: a timer runs at least once"),
            Self::NoSuchWorker { worker, workers } => write!(
                f,
                "there is no worker {worker}: the runtime has {workers}, numbered from 0"
            ),
            Self::Shutdown => write!(f, "the runtime has been shut down"),
            Self::NoRuntime => f.write_str(NO_RUNTIME),
        }
    }
}

impl Error for ArmError {}

/// Why a task was not spawned on the worker that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnError {
    /// The runtime does not have that worker.
    NoSuchWorker {
        /// The number asked for.
        worker: usize,
        /// How many workers there are; they are numbered from 0.
        workers: usize,
    },
    /// The runtime has been shut down, or is being shut down.
    Shutdown,
    /// The calling thread is not in the context of a runtime.
    NoRuntime,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchWorker { worker, workers } => {
                ArmError::NoSuchWorker { worker, workers }.fmt(f)
            }
            Self::Shutdown => ArmError::Shutdown.fmt(f),
            Self::NoRuntime => f.write_str(NO_RUNTIME),
        }
    }
}

impl Error for SpawnError {}

/// The calling thread is not in the context of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRuntime;

pub(crate) const NO_RUNTIME: &str = "this thread is in no Tourbillon runtime: call it from a task \
    or a callback, inside `block_on`, or after `Handle::enter`";

impl fmt::Display for NoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NO_RUNTIME)
    }
}

impl Error for NoRuntime {}

/// The clock of the runtime runs, and is not to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPaused;

impl fmt::Display for NotPaused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the wall clock can be set only while the clock of the runtime is paused: see \
             `time::pause` and `Builder::start_paused`",
        )
    }
}

impl Error for NotPaused {}
