//! The fuzz targets. Each module has a function `run`, which panics if it finds an error. It
//! accepts any bytes.
//!
//! The programs in `fuzz_targets/` are one line each. `tests/replay.rs` runs the targets without a
//! fuzzer.

pub mod cron;
pub mod fields;
pub mod guard;
pub mod http;
pub mod shard;
pub mod stores;
mod times;
