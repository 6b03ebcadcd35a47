//! What the programs with planted bugs need, and what shuttle and loom do not have. Programs that
//! call it do not run there, but for `timeout`.

use std::{
    future::Future,
    io,
    time::{Duration, SystemTime},
};

pub use std::fs;

/// Waits for `future` however long it takes.
pub async fn timeout<F: Future>(_: Duration, future: F) -> io::Result<F::Output> {
    Ok(future.await)
}

/// Waits and wakes in programs that do not run here.
#[derive(Default)]
pub struct Notify;

impl Notify {
    pub async fn notified(&self) {
        unimplemented!("it is not needed")
    }

    pub fn notify_one(&self) {}
}

/// Does nothing: no program with a disk runs here.
pub fn mount(_: &str) {}

pub fn sync_names(_: &str) -> io::Result<()> {
    unimplemented!("it has no disks")
}

pub async fn crash(_: &str) {
    unimplemented!("it has no hosts")
}

pub async fn restart(_: &str) {
    unimplemented!("it has no hosts")
}

pub fn random() -> u64 {
    unimplemented!("it is not needed")
}

pub fn now() -> SystemTime {
    unimplemented!("it has no clock")
}

pub fn set_clock(_: &str, _: SystemTime) {
    unimplemented!("it has no clock")
}
