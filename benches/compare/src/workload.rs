//! Workloads, and the figures that they produce.

use std::{fmt, process};

use serde::{Deserialize, Serialize};

use crate::system::System;

/// A result of a workload. The name states the unit, as in "p50 µs".
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Key of the figure, unique within its workload.
    pub name: &'static str,
    pub value: f64,
}

/// A [`Figure`] with an owned name, which the measuring process sends to its parent as JSON.
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

/// A workload that runs on several systems.
pub struct Workload {
    pub name: &'static str,
    /// Systems that support the workload.
    pub systems: &'static [System],
    /// Runs the workload once and returns its figures. With `quick`, it does so little work that
    /// the figures mean nothing, and only shows that it runs.
    pub run: fn(system: System, quick: bool) -> Vec<Figure>,
}

/// Exit code of a process whose system cannot run here: the system is not built in, the workload
/// does not support it, or the machine lacks something that it needs.
pub const REFUSED: i32 = 3;

/// Ends this process with [`REFUSED`], because its system cannot run here.
///
/// `reason` goes to standard error. The parent process shows it in the table.
pub fn refuse(reason: impl fmt::Display) -> ! {
    eprintln!("{reason}");
    process::exit(REFUSED);
}
