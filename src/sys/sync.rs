//! Synchronization primitives: those of the standard library, or those of the simulation with
//! `--cfg tourbillon_sim`, whose scheduler chooses the next thread at each of them. The runtime
//! names neither directly.

#[cfg(not(tourbillon_sim))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(tourbillon_sim)]
pub(crate) use super::sim::sync::{Condvar, Mutex, MutexGuard, atomic, thread};
