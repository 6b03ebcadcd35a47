//! tokio's names, by Tourbillon.

pub(crate) mod blocking;
pub(crate) mod budget;
pub(crate) mod context;
pub(crate) mod forward;
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
