//! The real tokio, for the package that is named `tokio` on systems other than 64-bit Linux.

pub use real::*;
