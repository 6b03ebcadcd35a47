//! The runtimes that take turns. Each is used as a server uses it.

use std::{
    ops::Add,
    time::{Duration, Instant},
};

use super::Error;

/// What a turn needs of a runtime.
pub(super) trait Runtime: 'static {
    /// The runtime's own type of instants, from which its sleeps take their deadlines.
    type Instant: Add<Duration, Output = Self::Instant> + Copy + Send + Sync;

    /// Converts a moment of the standard library.
    fn instant(moment: Instant) -> Self::Instant;

    /// Spawns a task, from a thread outside of the runtime.
    fn start(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Spawns a task, from a task of this runtime.
    fn spawn(task: impl Future<Output = ()> + Send + 'static);

    /// Waits until a deadline, in a task of this runtime.
    fn sleep_until(deadline: Self::Instant) -> impl Future<Output = ()> + Send;

    /// Lets the other tasks of the worker run.
    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// Implements [`Runtime`] for the runtime of a crate. Both crates have the same names.
macro_rules! runtime {
    ($krate:ident) => {
        impl Runtime for $krate::runtime::Runtime {
            type Instant = $krate::time::Instant;

            fn instant(moment: Instant) -> Self::Instant {
                moment.into()
            }

            fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
                drop(self.spawn(task));
            }

            fn spawn(task: impl Future<Output = ()> + Send + 'static) {
                drop($krate::spawn(task));
            }

            fn sleep_until(deadline: Self::Instant) -> impl Future<Output = ()> + Send {
                $krate::time::sleep_until(deadline)
            }

            fn yield_now() -> impl Future<Output = ()> + Send {
                $krate::task::yield_now()
            }
        }
    };
}

runtime!(tourbillon);
#[cfg(feature = "tokio")]
runtime!(tokio);

/// Whether this program has tokio.
pub(super) const HAS_TOKIO: bool = cfg!(feature = "tokio");

/// Builds tokio's runtime as `#[tokio::main]` does, with all drivers.
#[cfg(feature = "tokio")]
pub(super) fn tokio(workers: usize) -> Result<tokio::runtime::Runtime, Error> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let built = builder.worker_threads(workers).enable_all().build();
    built.map_err(|error| Error::Runtime(error.to_string()))
}

/// Without tokio there is none to build.
#[cfg(not(feature = "tokio"))]
pub(super) fn tokio(_: usize) -> Result<tourbillon::Runtime, Error> {
    Err(Error::NotBuilt(super::Peer::Tokio))
}
