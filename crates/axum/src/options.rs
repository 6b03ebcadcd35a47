//! The options of a server.

use std::time::Duration;

use tourbillon_hyper::TolerantSleep;

use crate::accept_error::AcceptError;

/// The options of a server.
pub(crate) struct Options {
    pub(crate) header_read_timeout: Option<Duration>,
    pub(crate) keep_alive_timeout: Option<Duration>,
    pub(crate) pressure: Option<Pressure>,
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
    /// Returns how long a connection stays open between requests, at present.
    pub(crate) fn kept(&self) -> Option<Duration> {
        let kept = self.keep_alive_timeout?;
        let Some(pressure) = &self.pressure else {
            return Some(kept);
        };
        // A number that is none counts as no pressure.
        let left = (1.0 - pressure()).clamp(LEAST_KEPT, 1.0);
        Some(if left < 1.0 { kept.mul_f64(left) } else { kept })
    }

    /// Returns how often a connection looks for how long it has been idle.
    pub(crate) fn checked(&self) -> Option<Duration> {
        let kept = self.keep_alive_timeout?;
        // The limit may become as short as that meanwhile.
        Some(match self.pressure {
            Some(_) => kept.mul_f64(LEAST_KEPT),
            None => kept,
        })
    }

    /// Returns a sleep for a time limit.
    pub(crate) fn limit(&self, limit: Duration) -> TolerantSleep {
        TolerantSleep::new(limit).tolerance(self.timeout_tolerance)
    }
}

/// The least part of the limit of idle connections that pressure leaves.
const LEAST_KEPT: f64 = 0.1;

/// The user's function for the part of the work that is refused.
type Pressure = Box<dyn Fn() -> f64 + Send + Sync>;

/// The user's function for failed accepts.
type OnAcceptError = Box<dyn Fn(&AcceptError) + Send + Sync>;
