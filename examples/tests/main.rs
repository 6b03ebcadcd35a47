//! The programs of `examples/`, driven by clients; and the names and links in the documentation.

#[cfg(feature = "cli")]
#[path = "../clients/mod.rs"]
mod clients;
#[path = "../common/mod.rs"]
mod common;

#[cfg(all(feature = "cli", feature = "cron"))]
mod cron_jobs;
#[cfg(feature = "cli")]
mod delayed_reply;
mod docs;
#[cfg(all(feature = "cli", feature = "macros", feature = "tokio-io"))]
mod escapes;
#[cfg(feature = "cli")]
mod game_cooldowns;
#[cfg(feature = "cli")]
mod heartbeat;
#[cfg(feature = "cli")]
mod live_chat;
#[cfg(all(feature = "cli", feature = "macros", feature = "tokio-io"))]
mod migration;
#[cfg(all(
    feature = "cli",
    feature = "cron",
    feature = "macros",
    feature = "tokio-io"
))]
mod output;
#[cfg(all(feature = "cli", feature = "tokio-io"))]
mod redis;
#[cfg(all(feature = "cli", feature = "macros"))]
mod retry_proxy;
mod ttl_cache;
