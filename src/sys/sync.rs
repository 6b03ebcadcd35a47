//! What threads share and wait for: the standard library's, or, built with `--cfg tourbillon_sim`,
//! that of a simulated world, which decides at each of these who runs next. The runtime names
//! neither.

#[cfg(tourbillon_sim)]
pub(crate) use super::sim::sync::{Condvar, Mutex, MutexGuard, atomic, thread};
#[cfg(not(tourbillon_sim))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};
