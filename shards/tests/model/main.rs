//! Random programs on one thread. Shard and model must agree after each step.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod options;
mod plain;

/// How a program moves a timer.
#[derive(Clone, Copy, Debug)]
enum Move {
    At(u64),
    FromNow(u64),
    FromStart(u64),
    Refresh,
}
