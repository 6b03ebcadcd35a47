//! The programs of `examples/`, driven by clients.

use tourbillon_support::{self as common, clients};

mod cron_jobs;
mod delayed_reply;
mod escapes;
mod game_cooldowns;
mod heartbeat;
mod live_chat;
mod migration;
mod output;
mod retry_proxy;
mod shared_machine;
mod ttl_cache;

use std::path::{Path, PathBuf};

/// Returns the path of a file of the repository.
fn path_of(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}
