//! Tasks, by Tourbillon.

pub use tourbillon::{
    spawn,
    task::{
        AbortHandle, Id, JoinError, JoinHandle, JoinSet, LocalEnterGuard, LocalKey, LocalSet,
        block_in_place, consume_budget, id, spawn_blocking, spawn_local, try_id, yield_now,
    },
};

/// A future without a budget. See [`unconstrained`].
pub type Unconstrained<F> = tourbillon::task::Unconstrained<real::task::coop::Unconstrained<F>>;

/// Runs a future without a budget: neither that of Tourbillon's futures nor that of tokio's
/// channels.
pub fn unconstrained<F>(future: F) -> Unconstrained<F> {
    tourbillon::task::unconstrained(real::task::coop::unconstrained(future))
}

/// The budget of a task. Sockets, timers and join handles spend Tourbillon's budget, and channels
/// spend tokio's. Each poll has both, and the functions here are about the first.
pub mod coop {
    pub use tourbillon::task::coop::{
        Coop, RestoreOnPending, consume_budget, cooperative, has_budget_remaining, poll_proceed,
    };

    pub use super::{Unconstrained, unconstrained};
}

/// The futures of this module.
pub mod futures {
    pub use tourbillon::task::TaskLocalFuture;
}
