//! Shards that several threads share.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod garbage;
mod owner_and_remotes;
mod real_time;
mod spares;
mod user_code;
