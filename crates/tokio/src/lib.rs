//! Tourbillon under tokio's name.
//!
//! A program that patches `tokio` with this package runs libraries for tokio on Tourbillon itself.
//! `sync`, the traits and tools of `io`, and most macros are those of the real tokio. `spawn`,
//! `task`, `time`, `net`, `signal` and `runtime` are Tourbillon's. `fs`, `process` and the standard
//! streams are written here, over Tourbillon. See README.md.

// `budget.rs` includes a file that names tokio.
extern crate real as tokio;

mod blocking;
mod budget;
mod context;
mod forward;
pub mod fs;
pub mod io;
pub mod net;
pub mod process;
pub mod runtime;
pub mod signal;
pub mod sync;
pub mod task;
pub mod time;

pub use real::pin;
#[cfg(feature = "macros")]
pub use real::{join, select, try_join};
#[cfg(feature = "macros")]
pub use tokio_macros::{main, test};
pub use tourbillon::{spawn, task_local};
