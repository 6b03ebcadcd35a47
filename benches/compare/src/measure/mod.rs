//! What the workloads measure with.

pub mod cpu;
pub mod lateness;
pub mod parts;
