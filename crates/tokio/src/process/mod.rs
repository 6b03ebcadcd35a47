//! Processes. They are started by the standard library, and their pipes and their end are awaited
//! by Tourbillon.

mod child;
mod command;
mod exit;
mod orphans;
mod pipes;

pub use self::{
    child::Child,
    command::Command,
    pipes::{ChildStderr, ChildStdin, ChildStdout},
};
