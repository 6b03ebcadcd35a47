//! Synchronization between tasks.
//!
//! Channels and locks that work on any executor also work here: those of the crates
//! `async-channel`, `async-lock`, `futures` and tokio (`tokio::sync`). This module adds [`Notify`],
//! which can wait with a time limit.

mod notified_timeout;
pub(crate) mod notify;

pub use self::notify::{Notified, Notify, OwnedNotified};
