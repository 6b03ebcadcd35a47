//! What tasks wait for each other with.
//!
//! Most of what a program needs of this kind works on any executor, and so here: the channels and locks of
//! the crates `async-channel`, `async-lock`, `futures` and tokio (`tokio::sync`). [`Notify`] is here for
//! waits that have a limit.

mod notified_timeout;
pub(crate) mod notify;

pub use self::notify::{Notified, Notify};
