//! Shared set-up of the tests of panics.

use std::time::Duration;

use tourbillon::{Runtime, time::sleep};

use super::on_worker;

pub fn panics(runtime: &Runtime) -> u64 {
    runtime.metrics().total().panics()
}

/// Checks that the runtime still runs callbacks, tasks and sleeps.
#[track_caller]
pub fn assert_alive(runtime: &Runtime) {
    on_worker(runtime, || ());
    assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
    runtime.block_on(sleep(Duration::from_micros(100)));
}
