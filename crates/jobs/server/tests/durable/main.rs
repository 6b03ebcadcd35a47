//! Tests of the queue, the nodes, the stores, the API and the page.

mod api;
mod blocking;
mod cases;
mod embedded;
mod fork;
mod future;
mod kill;
#[cfg(feature = "postgres")]
mod migration;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod network;
mod node;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod on_tokio;
mod output;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_locks;
#[cfg(feature = "postgres")]
mod postgres_plans;
#[cfg(feature = "postgres")]
mod postgres_server;
mod program;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod shared;
#[cfg(feature = "postgres")]
mod sql;
#[cfg(feature = "postgres")]
mod sql_replace;
mod support;
#[cfg(feature = "postgres")]
mod transactions;
mod version;

#[cfg(any(feature = "postgres", feature = "redis"))]
#[path = "../../src/bin/torture/server/mod.rs"]
mod server;
