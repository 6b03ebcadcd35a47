//! What the fuzz targets do with their bytes. Each module has a `run`, which panics where something is wrong; bytes that
//! mean nothing are an input as any other.
//!
//! The targets themselves, in `fuzz_targets/`, are a line each. `tests/replay.rs` runs the same without a fuzzer.

pub mod cron;
pub mod fields;
pub mod guard;
pub mod http;
pub mod resp;
pub mod shard;
pub mod stores;
mod times;
