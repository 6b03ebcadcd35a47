#![doc = include_str!("../README.md")]

mod alarm;
mod limit;
mod next_slot;
mod parker;
mod reserve;
mod ring;
mod searchers;

pub use self::{
    alarm::Alarm,
    limit::Limit,
    next_slot::{NextSlot, RawPointer},
    parker::{Parker, SearchClaim},
    ring::{Copied, Ring},
    searchers::{Parked, Searchers, Sleeper},
};

/// A moment that never comes, in nanoseconds: 2^61 − 1, some 73 years after time zero.
///
/// Later moments saturate to this value.
pub const NEVER: u64 = (1 << 61) - 1;
