//! Sleep and search: when a worker sleeps, which thread wakes it, and how a stuck one is rescued.

pub(crate) mod next_slot;
pub(crate) mod parker;
pub(crate) mod reserve;
pub(crate) mod searchers;
pub(crate) mod watchdog;
