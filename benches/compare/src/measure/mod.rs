//! The measuring tools of the workloads.

pub mod cpu;
#[path = "../../../../src/bin/tourbillon/disturbance.rs"]
pub mod disturbance;
pub mod lateness;
pub mod parts;
