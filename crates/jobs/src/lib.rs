#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]

// The examples of the texts need all these.
#[cfg(all(
    doctest,
    feature = "sqlite",
    feature = "postgres",
    feature = "tokio",
    feature = "json"
))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../GUIDE.md")]
struct Texts;

mod batch;
mod counted;
mod dead;
mod error;
pub mod job;
mod keeper;
pub mod node;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod queue;
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "the stores count again")
)]
mod recount;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod remote;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod row;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;
#[cfg_attr(
    not(all(feature = "postgres", feature = "redis", feature = "tls")),
    allow(dead_code, unused_imports, reason = "each feature uses a part")
)]
mod tls;
mod traceparent;

#[cfg(feature = "json")]
pub use self::job::JobArgs;
pub use self::{
    job::{NewJob, Repeat, Time, When},
    node::{Attempt, Backoff, Failure, Node},
    queue::{Queue, QueueError},
};
