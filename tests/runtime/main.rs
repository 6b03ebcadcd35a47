//! The runtime as a whole: how it is built and entered, how its workers wait, signals, tracing.

use tourbillon_support as common;
#[cfg(feature = "tracing")]
use tourbillon_support::traced;

#[cfg(feature = "tracing")]
mod armed_in;
mod asleep;
mod auto_traits;
mod build;
mod context;
mod cores;
mod current_thread;
mod dump;
mod idle;
mod limits;
#[cfg(feature = "macros")]
mod macros;
mod names;
mod observed;
mod on_demand;
mod park_hooks;
#[cfg(feature = "probes")]
mod probes;
mod quota;
mod short_jobs;
mod signals;
mod spin_before;
#[cfg(feature = "tracing")]
mod tracing;
mod turn;
mod workers;
