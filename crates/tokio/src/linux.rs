//! tokio's names, by Tourbillon.

pub(crate) mod blocking;
pub(crate) mod budget;
pub(crate) mod context;
pub(crate) mod forward;
pub mod fs;
pub mod io;
#[doc(hidden)]
pub mod macros;
pub mod net;
pub mod process;
#[cfg(tokio_unstable)]
pub(crate) mod rng;
pub mod runtime;
pub mod signal;
pub mod sync;
pub mod task;
pub mod time;

pub use real::pin;
#[cfg(feature = "macros")]
#[cfg(not(tokio_unstable))]
pub use real::select;
#[cfg(feature = "macros")]
pub use real::{join, try_join};
#[cfg(feature = "macros")]
pub use tokio_macros::{main, test};
pub use tourbillon::{spawn, task_local};
