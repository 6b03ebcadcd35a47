//! Tests of the queue, the nodes, both stores, the API and the page.

mod api;
mod cases;
mod embedded;
mod kill;
#[cfg(feature = "postgres")]
mod network;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
mod support;

// The client of the browser is that of the main package's tests.
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
