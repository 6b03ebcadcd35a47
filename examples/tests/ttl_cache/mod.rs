//! The example `ttl_cache`: a cache that speaks redis's protocol.

#[cfg(feature = "cli")]
mod against_redis;
#[cfg(feature = "cli")]
mod expiry;
#[cfg(feature = "cli")]
mod hostile_clients;
#[cfg(feature = "cli")]
mod long_replies;
mod parsers;
mod paused_store;
#[cfg(feature = "cli")]
mod protocol;
#[cfg(feature = "cli")]
mod redis_cli;
