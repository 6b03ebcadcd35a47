//! The channels and locks of the real tokio. The sender of `mpsc` is wrapped for its time limit.

pub mod mpsc;

pub use real::sync::*;
