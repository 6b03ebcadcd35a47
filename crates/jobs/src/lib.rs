#![doc = include_str!("../README.md")]

#[cfg(doctest)]
#[doc = include_str!("../GUIDE.md")]
struct Guide;

pub mod api;
mod batch;
pub mod job;
mod keeper;
pub mod node;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod queue;
mod recount;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod remote;
mod row;
pub mod sqlite;
pub mod store;

pub use self::{
    job::{Repeat, Time, When},
    node::{Attempt, Backoff, Failure, Node},
    queue::{Queue, QueueError},
};
