//! Tests of the queue, the nodes, the stores, the API and the page.

mod api;
mod blocking;
mod cases;
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "redis")))]
mod certificates;
mod embedded;
mod fork;
mod future;
mod kill;
#[cfg(feature = "postgres")]
mod migration;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod network;
mod node;
mod observed;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod on_tokio;
mod output;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_data;
#[cfg(feature = "postgres")]
mod postgres_earlier;
#[cfg(feature = "postgres")]
mod postgres_hosts;
#[cfg(feature = "postgres")]
mod postgres_locks;
#[cfg(feature = "postgres")]
mod postgres_plans;
#[cfg(all(feature = "postgres", feature = "tls"))]
mod postgres_secured;
#[cfg(feature = "postgres")]
mod postgres_server;
#[cfg(all(feature = "postgres", feature = "tls"))]
mod postgres_tls;
mod program;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(feature = "redis", feature = "tls"))]
mod redis_tls;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod shared;
#[cfg(feature = "postgres")]
mod sql;
#[cfg(feature = "postgres")]
mod sql_replace;
mod support;
mod trace;
#[cfg(feature = "postgres")]
mod transactions;
mod version;

#[cfg(any(feature = "postgres", feature = "redis"))]
#[path = "../../src/bin/torture/server/mod.rs"]
mod server;
