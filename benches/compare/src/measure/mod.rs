//! The measuring tools of the workloads.

pub mod cpu;
pub mod lateness;
pub mod parts;
