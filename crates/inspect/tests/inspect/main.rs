//! The live page: what its server answers, what a browser shows, and what Prometheus reads.

use tourbillon_support as common;
#[cfg(feature = "cli")]
use tourbillon_support::clients;
#[path = "../../testing/web/src/client.rs"]
#[expect(dead_code, reason = "it is shared")]
mod web;

mod answers;
mod client;
mod hostile_clients;
mod lifecycle;
#[cfg(feature = "cli")]
mod page;
#[cfg(feature = "cli")]
mod program;
mod prometheus;
#[cfg(feature = "cli")]
mod prometheus_files;
mod server;
