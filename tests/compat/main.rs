//! The companion: tokio's functions in tasks of this runtime, and ours in tasks of tokio.

use tourbillon_support as common;

mod both_ways;
mod budget;
mod clocks;
mod shutdown;
mod wrapped;

use tourbillon::{Runtime, runtime::Builder};

/// Builds a runtime of two workers with a companion.
fn with_companion() -> Runtime {
    let builder = Builder::new().worker_threads(2).pin(false).enable_tokio();
    builder.build().unwrap()
}
