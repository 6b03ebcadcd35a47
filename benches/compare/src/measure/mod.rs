//! Measuring tools, which the workloads share.

pub mod cpu;
pub mod lateness;
pub mod parts;
