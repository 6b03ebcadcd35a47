//! One shard, timer by timer: what each operation answers and when each callback runs.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod cancel_and_wait;
mod condition;
mod counts;
mod edge_cases;
mod fire;
mod jitter;
mod known_defects;
mod many;
mod names;
mod outcome;
mod recurring;
mod settle;
mod shrink;
mod start;
mod tolerance;
mod values;
