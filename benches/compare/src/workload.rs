//! A workload, and the figures that come out of it.

use std::{fmt, process};

use serde::{Deserialize, Serialize};

use crate::system::System;

/// A result, in the unit that its name says.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Which of the workload's figures this is.
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

/// A program that runs on several systems.
pub struct Workload {
    pub name: &'static str,
    /// Which systems can do it.
    pub systems: &'static [System],
    /// Does it. With `quick` it has so little to do that it only shows that it works.
    pub run: fn(system: System, quick: bool) -> Vec<Figure>,
}

/// The exit code of a process whose system cannot run: it is not built in, or the kernel refuses
/// it.
pub const REFUSED: i32 = 3;

/// Ends this process because its system cannot run here. The table shows `reason`.
pub fn refuse(reason: impl fmt::Display) -> ! {
    eprintln!("{reason}");
    process::exit(REFUSED);
}
