//! Parking: the sleeping owner, and its alarm.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod defer;
mod mates;
mod park;
mod sleep_until;
mod watchdog;
mod watchdog_put_off;
mod watched;
