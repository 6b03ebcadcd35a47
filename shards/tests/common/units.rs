//! Units of time, in nanoseconds.

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
pub const HOUR: u64 = 3_600 * SECOND;
pub const DAY: u64 = 24 * HOUR;
pub const YEAR: u64 = 365 * DAY;
