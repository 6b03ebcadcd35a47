//! What the examples share.

pub mod accept;
pub mod arguments;
pub mod descriptors;
pub mod handshake;
pub mod room;
pub mod say;
pub mod stop;
pub mod tls;
pub mod trouble;
pub mod values;
