//! The words of the workers, on one thread.
#![cfg(not(loom))]

mod next_slot;
mod reserve;
mod searchers;
