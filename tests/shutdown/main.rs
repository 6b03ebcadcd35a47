//! How a runtime ends: what it waits for, what it cancels, and what it leaves behind.

#[path = "../common/mod.rs"]
mod common;

mod destructors;
mod graceful;
mod late;
mod million_timers;
mod pending;
mod resources;
mod timer_outcome;
