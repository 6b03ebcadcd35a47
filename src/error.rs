//! The errors of building a runtime, arming timers and spawning tasks.

use std::{error::Error, fmt, io, time::Duration};

/// The reason why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// `worker_threads(0)`: a runtime needs at least one worker.
    ZeroWorkers,
    /// `helpers` with a lower bound above its upper bound, or with an upper bound above the
    /// maximum.
    Helpers {
        /// The lower bound.
        least: usize,
        /// The upper bound.
        most: usize,
        /// The maximum of the upper bound.
        max: usize,
    },
    /// `max_blocking_threads(0)`: functions given to `spawn_blocking` would never run.
    ZeroBlockingThreads,
    /// `worker_threads` above the maximum.
    TooManyWorkers {
        /// The number of workers asked for.
        asked: usize,
        /// The maximum number of workers.
        max: usize,
    },
    /// A scheduler interval of zero.
    ZeroInterval {
        /// The builder method.
        option: &'static str,
    },
    /// `stall_threshold(Duration::ZERO)`: every job would be reported.
    ZeroStallThreshold,
    /// `rescue_latency` below its minimum: a peer takes that long to come.
    RescueLatency {
        /// The latency asked for.
        asked: Duration,
        /// The minimum.
        least: Duration,
    },
    /// `timer_budget` with a share that is not between zero and one.
    TimerBudget {
        /// The share asked for.
        asked: f64,
    },
    /// A runtime name that is empty or has only spaces.
    EmptyName,
    /// A thread name that contains a NUL byte.
    ThreadName {
        /// The name.
        name: String,
    },
    /// `default_group` with an invalid value.
    DefaultGroup(GroupError),
    /// A core that the process may not use.
    CoreNotAllowed {
        /// The core asked for.
        core: usize,
        /// The cores of the process's affinity mask.
        allowed: Vec<usize>,
    },
    /// The system refused to create a descriptor or a thread.
    Os {
        /// The kind of object that was to be created.
        what: &'static str,
        /// The operating system's error.
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
                    "`helpers({least}..={most})`: the range must ascend, and end at {max} at most"
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
                    "`stall_threshold(0)` would report every job (`Duration::MAX` reports none)"
                )
            }
            Self::RescueLatency { asked, least } => {
                write!(
                    f,
                    "`rescue_latency({asked:?})`: it is at least {least:?} (`Duration::MAX` turns \
                     rescue off)"
                )
            }
            Self::TimerBudget { asked } => {
                write!(
                    f,
                    "`timer_budget({asked})`: a share of a core is above 0 and at most 1 (`exact` \
                     sets no limit)"
                )
            }
            Self::EmptyName => write!(f, "the name of the runtime is empty"),
            Self::ThreadName { name } => {
                write!(f, "the thread name {name:?} has a NUL byte in it")
            }
            Self::DefaultGroup(error) => write!(f, "`default_group`: {error}"),
            Self::CoreNotAllowed { core, allowed } => {
                write!(
                    f,
                    "this process may not use core {core}, only cores {allowed:?}"
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
            Self::DefaultGroup(error) => Some(error),
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

/// The reason why a timer was not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError {
    /// The number of pending timers has reached
    /// [`Builder::max_timers`](crate::runtime::Builder::max_timers).
    Full {
        /// The limit.
        max_timers: usize,
    },
    /// A recurring timer with a period of zero.
    ZeroPeriod,
    /// A recurring timer with `times(0)`.
    ZeroTimes,
    /// A worker number that the runtime does not have.
    NoSuchWorker {
        /// The worker number asked for.
        worker: usize,
        /// The number of workers. Their numbers start at 0.
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
                    "{max_timers} timers are pending, which is the limit (`max_timers`)"
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

/// The reason why a task was not spawned on the worker that the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnError {
    /// A worker number that the runtime does not have.
    NoSuchWorker {
        /// The worker number asked for.
        worker: usize,
        /// The number of workers. Their numbers start at 0.
        workers: usize,
    },
    /// The runtime has been shut down, or a shutdown has begun.
    Shutdown,
    /// The calling thread is not in the context of a runtime.
    NoRuntime,
    /// The runtime is a current-thread one: no worker keeps its thread. Use a
    /// [`LocalSet`](crate::task::LocalSet).
    CurrentThread,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchWorker { worker, workers } => {
                ArmError::NoSuchWorker { worker, workers }.fmt(f)
            }
            Self::Shutdown => ArmError::Shutdown.fmt(f),
            Self::NoRuntime => f.write_str(NO_RUNTIME),
            Self::CurrentThread => f.write_str(
                "a current-thread runtime has no worker that keeps its thread: use a `LocalSet`",
            ),
        }
    }
}

impl Error for SpawnError {}

/// The reason why a [group](crate::task::Group) of tasks was not made, or not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// A name that is empty or has only spaces.
    EmptyName,
    /// The runtime has a group of this name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// Zero shares, or more than the maximum.
    Shares {
        /// The shares asked for.
        asked: u32,
        /// The maximum.
        most: u32,
    },
    /// `latency_goal(Duration::ZERO)`: a job always takes some time.
    ZeroLatencyGoal,
    /// `max_blocking_threads(0)`: functions given to `spawn_blocking` would never run.
    ZeroBlockingThreads,
    /// The runtime has as many groups as it can have.
    TooMany {
        /// The maximum number of groups beside the default one.
        most: usize,
    },
    /// The calling thread is not in the context of a runtime.
    NoRuntime,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("the name of the group is empty"),
            Self::NameTaken { name } => write!(f, "the runtime has a group {name:?} already"),
            Self::Shares { asked, most } => {
                write!(
                    f,
                    "a group of {asked} shares: there must be from 1 to {most}"
                )
            }
            Self::ZeroLatencyGoal => f.write_str("`latency_goal(0)`: a goal is at least 1 ns"),
            Self::ZeroBlockingThreads => {
                f.write_str("`max_blocking_threads(0)`: there must be room for at least 1")
            }
            Self::TooMany { most } => write!(
                f,
                "the runtime has {most} groups beside the default one, and can have no more"
            ),
            Self::NoRuntime => f.write_str(NO_RUNTIME),
        }
    }
}

impl Error for GroupError {}

/// The reason why [`Handle::set_workers`](crate::runtime::Handle::set_workers) changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkersError {
    /// `set_workers(0)`: nothing would run.
    Zero,
    /// More workers than the runtime was built with.
    TooMany {
        /// The number of workers asked for.
        asked: usize,
        /// The number of workers that the runtime was built with.
        most: usize,
    },
}

impl fmt::Display for WorkersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("`set_workers(0)`: at least 1 worker must take part"),
            Self::TooMany { asked, most } => write!(
                f,
                "`set_workers({asked})`: the runtime was built with {most} workers; \
                 build it with as many as it may ever use"
            ),
        }
    }
}

impl Error for WorkersError {}

/// The error of an operation that needs a runtime: the calling thread is not in the context of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRuntime;

pub(crate) const NO_RUNTIME: &str = "this thread is in no Tourbillon runtime: do this in a task or \
    a callback, inside `block_on`, or after `Handle::enter`";

impl fmt::Display for NoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NO_RUNTIME)
    }
}

impl Error for NoRuntime {}

/// The error of an operation on a descriptor whose runtime has been shut down.
#[derive(Debug)]
pub(crate) struct WatchEnded;

impl fmt::Display for WatchEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the runtime that watched this descriptor has been shut down")
    }
}

impl Error for WatchEnded {}

/// Returns whether an I/O operation failed because its runtime has been shut down.
///
/// ```
/// use tourbillon::{Runtime, net::TcpListener, runtime::is_rt_shutdown_err};
///
/// let (one, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
/// let listener = one.block_on(async { TcpListener::bind("127.0.0.1:0").await.unwrap() });
/// drop(one);
/// let error = other.block_on(async { listener.accept().await.unwrap_err() });
/// assert!(is_rt_shutdown_err(&error));
/// ```
pub fn is_rt_shutdown_err(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| {
        inner.is::<WatchEnded>()
            // A descriptor that was to be watched after the shutdown.
            || inner.downcast_ref::<ArmError>() == Some(&ArmError::Shutdown)
    })
}

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
