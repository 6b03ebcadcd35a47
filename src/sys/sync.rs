//! Synchronization primitives: those of the standard library, or those of the simulation with
//! `--cfg tourbillon_sim`, whose scheduler chooses the next thread at each of them. The runtime
//! names neither directly.

#[cfg(not(tourbillon_sim))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(tourbillon_sim)]
pub(crate) use tourbillon_sync::sim::{Condvar, Mutex, MutexGuard, atomic, thread};

/// Lets the simulation run another thread here. The queues of crossbeam have no points.
#[cfg(tourbillon_sim)]
pub(crate) use tourbillon_sync::sim::point;

/// Does nothing outside of the simulation.
#[cfg(not(tourbillon_sim))]
#[inline]
pub(crate) fn point() {}
