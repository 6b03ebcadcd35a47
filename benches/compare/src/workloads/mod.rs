//! What is measured: a module for each workload of the table.
//!
//! Each runs in a process of its own, which does one workload on one system, once.

#[path = "../measure/mod.rs"]
mod measure;
#[path = "../runtimes/mod.rs"]
mod runtimes;
mod w3;
mod w5;
mod w7;
mod w8;
mod w9;

use crate::system::System;

/// What came out, in the unit that its name says.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Of the workload: which of its figures this is.
    pub name: &'static str,
    pub value: f64,
}

pub struct Workload {
    pub name: &'static str,
    /// Which systems can do it.
    pub systems: &'static [System],
    /// Does it; `quick`: with so little to do that it only shows that it works.
    pub run: fn(system: System, quick: bool) -> Vec<Figure>,
}

pub const ALL: &[Workload] = &[
    w3::WORKLOAD,
    w5::WORKLOAD,
    w7::WORKLOAD,
    w8::WORKLOAD,
    w9::WORKLOAD,
];
