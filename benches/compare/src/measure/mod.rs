//! Measuring tools, which the workloads share.

pub mod cpu;
// The program `tourbillon` and its benches share this file.
#[path = "../../../../src/bin/tourbillon/disturbance.rs"]
pub mod disturbance;
pub mod lateness;
pub mod parts;
