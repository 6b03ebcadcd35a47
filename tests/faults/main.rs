//! A system that fails or behaves badly: no descriptors, threads or memory, refused system calls,
//! signals, a stopped process, forks, and clocks that are decades ahead.
//!
//! Limits, filters and signals concern the whole process, which all tests of this program share:
//! such a test runs in a process of its own (`common::process::alone`).

use tourbillon_support::{self as common, system_calls};

mod fork;
mod interrupted;
#[cfg(not(tourbillon_no_pool))]
mod memory;
mod no_descriptors;
mod no_threads;
mod refused_calls;
mod stopped;
mod time_namespaces;
mod uptime;
