//! The workloads, one module for each.
//!
//! Each process runs one workload on one system, once. Some workloads start further processes for
//! their parts.

mod w1;
mod w10;
mod w2;
mod w3;
mod w4;
mod w5;
mod w6;
mod w7;
mod w8;
mod w9;

use crate::workload::Workload;

/// All workloads, in the order of the table.
pub const ALL: &[Workload] = &[
    w1::WORKLOAD,
    w2::WORKLOAD,
    w3::WORKLOAD,
    w4::WORKLOAD,
    w5::WORKLOAD,
    w6::WORKLOAD,
    w7::WORKLOAD,
    w8::WORKLOAD,
    w9::WORKLOAD,
    w10::WORKLOAD,
];
