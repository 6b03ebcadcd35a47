use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header::RETRY_AFTER};

/// How late a request is refused.
///
/// While there is too much to do, requests of a lower priority are refused first: those of the next
/// one only if all of the lower one are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Refused first: what can be done later, or by nobody.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Refused last.
    High,
    /// Never refused, and not counted: health checks, metrics, an operator's page.
    Always,
}

/// Why a request is refused: for a hook that writes the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The priority of the request.
    pub priority: Priority,
    /// How long tasks have waited for a worker, at least, in the last moments.
    pub delay: Duration,
    /// When the client may try again: for the header `Retry-After`, in whole seconds.
    pub retry_after: Duration,
}

pub(crate) type Answer = dyn Fn(Shed) -> Response<String> + Send + Sync;

pub(crate) fn default(shed: Shed) -> Response<String> {
    let text = "The server has too much to do. Try again later.\n";
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let seconds = shed.retry_after.as_secs() + u64::from(shed.retry_after.subsec_nanos() > 0);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}
