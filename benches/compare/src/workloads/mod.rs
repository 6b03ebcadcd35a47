//! What is measured: a module for each workload of the table.
//!
//! Each runs in a process of its own, which does one workload on one system, once.

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

use std::{fmt, process};

use serde::{Deserialize, Serialize};

use crate::system::System;

/// What came out, in the unit that its name says.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Of the workload: which of its figures this is.
    pub name: &'static str,
    pub value: f64,
}

/// A [`Figure`] on its way out of the process that measured it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    pub name: String,
    pub value: f64,
}

impl From<Figure> for Measured {
    fn from(figure: Figure) -> Self {
        Self {
            name: figure.name.to_owned(),
            value: figure.value,
        }
    }
}

pub struct Workload {
    pub name: &'static str,
    /// Which systems can do it.
    pub systems: &'static [System],
    /// Does it; `quick`: with so little to do that it only shows that it works.
    pub run: fn(system: System, quick: bool) -> Vec<Figure>,
}

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

/// What a process exits with whose system cannot run: not built in, or refused by the kernel.
pub const REFUSED: i32 = 3;

/// Ends this process: the system cannot run here, and why. The table will say so.
pub fn refuse(reason: impl fmt::Display) -> ! {
    eprintln!("{reason}");
    process::exit(REFUSED);
}
