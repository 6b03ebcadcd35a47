//! The options of an inspector.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use crate::{
    engine::handle::Handle,
    integrations::{
        axum::hosts::{Hosts, InvalidHost},
        inspect::inspector::Inspector,
    },
    sys::process::descriptor_limit,
};

/// The default limit of connections, if the process may have enough descriptors.
const MAX_CONNECTIONS: usize = 1024;
/// The divisor of the process's descriptors that limits the default further.
const DESCRIPTOR_SHARE: u64 = 4;
/// The minimum of the default: a browser keeps six connections open.
const MIN_CONNECTIONS: usize = 16;
/// The connections reserved for other requests than event streams: one in `SPARE`, at least
/// `MIN_SPARE`, but at most half of all.
const SPARE: usize = 32;
const MIN_SPARE: usize = 16;

/// A builder for an [`Inspector`]. See [`Inspector::builder`].
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Runtime, inspect::Inspector};
///
/// let runtime = Runtime::new().unwrap();
/// let inspector = Inspector::builder(runtime.handle())
///     .allow_host("build-7.example")?
///     .max_connections(64)
///     .period(Duration::from_secs(1))
///     .serve("127.0.0.1:0")?;
/// inspector.shutdown();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
#[derive(Clone)]
pub struct Builder {
    pub(crate) handle: Handle,
    pub(crate) hosts: Hosts,
    pub(crate) max_connections: usize,
    pub(crate) write_timeout: Duration,
    pub(crate) period: Duration,
}

impl Builder {
    pub(crate) fn new(handle: &Handle) -> Self {
        let part = descriptor_limit().map_or(u64::MAX, |limit| limit / DESCRIPTOR_SHARE);
        let part = usize::try_from(part).unwrap_or(usize::MAX);
        Self {
            handle: handle.clone(),
            hosts: Hosts::default(),
            max_connections: part.clamp(MIN_CONNECTIONS, MAX_CONNECTIONS),
            write_timeout: Duration::from_secs(10),
            period: Duration::from_millis(250),
        }
    }

    /// Allows a host name in requests: the one under which a browser opens the page.
    ///
    /// By default a request may be for an IP address or `localhost`. Any other name gets 421:
    /// another page could make its own name resolve to this address and so read the answers (DNS
    /// rebinding). The port, upper case, and a dot at the end are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the name is not valid in a browser: it is empty, a URL or a pattern, or has letters
    /// that browsers encode (`xn--…`). The error converts to an [`io::Error`], which
    /// [`serve`](Builder::serve) returns.
    pub fn allow_host(mut self, name: impl AsRef<str>) -> Result<Self, InvalidHost> {
        self.hosts.allow(name.as_ref())?;
        Ok(self)
    }

    /// Limits the number of connected clients. Further ones wait in the system's queue. The default
    /// is 1,024, or a quarter of the process's descriptors if that is less. The minimum is 2.
    ///
    /// One connection in 32, but at least 16 and at most half of all, is reserved for requests that
    /// are answered at once. If all others carry event streams, a further request for events gets
    /// 503.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count.max(2);
        self
    }

    /// Limits how long a client may read nothing before its connection is closed. The default is 10
    /// s; zero counts as one millisecond.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets the period of events. The default is 250 ms; less than 10 ms counts as 10 ms.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period.max(Duration::from_millis(10));
        self
    }

    /// Starts the inspector. It listens at the first of the addresses that can be bound. With port
    /// 0 the system chooses the port.
    ///
    /// # Errors
    ///
    /// Fails if no address can be bound, if the system provides no thread or descriptor, or if the
    /// runtime has been shut down.
    pub fn serve(self, addr: impl ToSocketAddrs) -> io::Result<Inspector> {
        let addrs: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
        Inspector::start(self, addrs)
    }

    /// Returns the maximum number of event streams.
    pub(crate) fn max_listeners(&self) -> usize {
        let all = self.max_connections;
        all - all.div_ceil(SPARE).max(MIN_SPARE).min(all / 2)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("hosts", &self.hosts)
            .field("max_connections", &self.max_connections)
            .field("write_timeout", &self.write_timeout)
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}
