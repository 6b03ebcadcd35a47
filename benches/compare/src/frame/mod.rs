//! Runs each workload on each system, in one child process per run, and reports the results.

pub mod brief;
pub mod child;
pub mod error;
pub mod machine;
pub mod plot;
pub mod repeat;
pub mod results;
pub mod rounds;
pub mod table;
pub mod targets;
