//! Tasks, by Tourbillon.

pub mod coop;

pub use tourbillon::{
    spawn,
    task::{
        AbortHandle, Id, JoinError, JoinHandle, JoinSet, LocalEnterGuard, LocalKey, LocalSet,
        block_in_place, id, spawn_blocking, spawn_local, try_id, yield_now,
    },
};

pub use self::coop::{Unconstrained, consume_budget, unconstrained};

/// The futures of this module.
pub mod futures {
    pub use tourbillon::task::TaskLocalFuture;
}
