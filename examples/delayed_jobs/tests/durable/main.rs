//! Tests of the queue, the nodes, the stores, the API and the page.

mod api;
mod blocking;
mod cases;
mod embedded;
mod future;
mod kill;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod network;
mod node;
mod output;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_locks;
#[cfg(feature = "postgres")]
mod postgres_server;
mod program;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod shared;
mod support;
mod version;

#[cfg(any(feature = "postgres", feature = "redis"))]
#[path = "../../src/bin/torture/server/mod.rs"]
mod server;

#[path = "../../../../tests/clients/output.rs"]
mod lost;

// The browser client of the main package's tests.
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../tests/clients/browser.rs"]
mod browser;
#[path = "../../../../tests/common/installed.rs"]
mod installed;

/// What the client of the browser needs.
mod common {
    pub use crate::support::{PATIENCE, eventually};
}

/// What the client of the browser needs.
mod clients {
    pub use crate::installed::have;

    /// Only a browser that hangs takes longer.
    pub const AGES: std::time::Duration = std::time::Duration::from_secs(120);
}
