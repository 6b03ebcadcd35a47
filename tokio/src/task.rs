//! Tasks, by Tourbillon.

pub use tourbillon::{
    spawn,
    task::{
        AbortHandle, Id, JoinError, JoinHandle, JoinSet, LocalEnterGuard, LocalKey, LocalSet,
        Unconstrained, block_in_place, consume_budget, coop, id, spawn_blocking, spawn_local,
        try_id, unconstrained, yield_now,
    },
};

/// The futures of this module.
pub mod futures {
    pub use tourbillon::task::TaskLocalFuture;
}
