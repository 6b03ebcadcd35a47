//! How a runtime ends: what it waits for, what it cancels, and what it leaves behind.

use tourbillon_support as common;

mod destructors;
mod graceful;
mod late;
mod million_timers;
mod pending;
mod resources;
mod timer_outcome;
