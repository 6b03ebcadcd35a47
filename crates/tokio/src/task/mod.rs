//! Tasks, by Tourbillon.

#[cfg(all(tokio_unstable, feature = "tracing"))]
mod builder;
pub mod coop;

pub use tourbillon::{
    spawn,
    task::{
        AbortHandle, Id, JoinError, JoinHandle, JoinSet, LocalEnterGuard, LocalKey, LocalSet,
        block_in_place, id, spawn_blocking, spawn_local, try_id, yield_now,
    },
};

#[cfg(all(tokio_unstable, feature = "tracing"))]
pub use self::builder::Builder;
pub use self::coop::{Unconstrained, consume_budget, unconstrained};

/// Sets of tasks.
pub mod join_set {
    #[cfg(all(tokio_unstable, feature = "tracing"))]
    pub use tourbillon::facade::JoinSetBuilder as Builder;
    pub use tourbillon::task::JoinSet;
}

/// The futures of this module.
pub mod futures {
    pub use tourbillon::task::TaskLocalFuture;
}
