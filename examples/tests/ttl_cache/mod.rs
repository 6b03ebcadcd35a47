//! The example `ttl_cache`: a cache that speaks redis's protocol.

mod against_redis;
mod expiry;
mod hostile_clients;
mod long_replies;
mod parsers;
mod paused_store;
mod protocol;
mod redis_cli;
