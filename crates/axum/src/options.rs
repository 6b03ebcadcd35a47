//! The options of a server.

use std::time::Duration;

use tourbillon_hyper::TolerantSleep;

use crate::accept_error::AcceptError;

/// The options of a server.
pub(crate) struct Options {
    pub(crate) header_read_timeout: Option<Duration>,
    pub(crate) keep_alive_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    pub(crate) request_body_timeout: Option<Duration>,
    /// In bytes per second.
    pub(crate) min_transfer_rate: u32,
    pub(crate) shutdown_timeout: Option<Duration>,
    /// How late the other limits may be. `None`: derived from each limit.
    pub(crate) timeout_tolerance: Option<Duration>,
    /// `None`: derived from the limit of descriptors.
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_buf_size: usize,
    pub(crate) http1_only: bool,
    pub(crate) half_close: bool,
    pub(crate) on_accept_error: Option<OnAcceptError>,
}

impl Options {
    /// Returns a sleep for a time limit.
    pub(crate) fn limit(&self, limit: Duration) -> TolerantSleep {
        TolerantSleep::new(limit).tolerance(self.timeout_tolerance)
    }
}

/// The user's function for failed accepts.
type OnAcceptError = Box<dyn Fn(&AcceptError) + Send + Sync>;
