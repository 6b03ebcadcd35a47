//! Parking: the searchers, the sleeping owner, and the alarm of the watchdog.
#![cfg(not(loom))]

#[path = "../common/mod.rs"]
mod common;

mod next_slot;
mod park;
mod reserve;
mod searchers;
mod sleep_until;
mod watchdog;
mod watchdog_put_off;
mod watched;
