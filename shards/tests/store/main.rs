//! The stores of deadlines, alone and at any uptime.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod stores;
mod uptime;
