//! The live page: what its server answers, what a browser shows, and what Prometheus reads.

use tourbillon_support as common;
use tourbillon_support::clients;
use tourbillon_web as web;

mod answers;
mod client;
mod faults;
mod hostile_clients;
mod lifecycle;
mod page;
#[cfg(feature = "profile")]
mod profile;
mod prometheus;
mod prometheus_files;
mod server;
