//! Tests of the queue, the nodes, both stores, the API and the page.

mod api;
mod cases;
mod embedded;
mod kill;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
mod support;

/// What the client of the browser needs.
mod common {
    pub use crate::support::{PATIENCE, eventually};
    #[path = "../../../../../tests/common/installed.rs"]
    pub mod installed;
}

/// The client of the browser, which the main package's tests have.
mod clients {
    pub use crate::common::installed::have;

    /// Only a browser that hangs takes longer.
    pub const AGES: std::time::Duration = std::time::Duration::from_secs(120);

    #[allow(dead_code, reason = "other tests use the rest")]
    #[path = "../../../../../tests/clients/browser.rs"]
    pub mod browser;
}
