//! Runs all in turn, each in a process of its own, and shows what came out.

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
