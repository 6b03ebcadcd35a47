//! What the examples share.

pub mod accept;
pub mod descriptors;
pub mod handshake;
pub mod room;
pub mod stop;
pub mod tls;
pub mod trouble;
pub mod values;

pub use tourbillon_support::{arguments, say};
