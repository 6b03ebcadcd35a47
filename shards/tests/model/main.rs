//! Random programs on one thread. Shard and model must agree after each step.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod options;
mod plain;
