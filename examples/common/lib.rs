//! What the examples share.

pub mod accept;
pub mod handshake;
pub mod room;
pub mod tls;
pub mod values;

pub use tourbillon_support::{arguments, say, server};
