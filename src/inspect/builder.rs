//! How an inspector is made.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use super::{
    hosts::{Hosts, InvalidHost},
    inspector::Inspector,
};
use crate::{Handle, sys::process::descriptor_limit};

/// How many connections there are by default, where the process may have so many descriptors.
const CONNECTIONS: usize = 1024;
/// The part of the process's descriptors that they have at most.
const PART: u64 = 4;
/// How many there are at least: browsers keep six each.
const LEAST: usize = 16;
/// How many of all connections are kept for what is no stream of events: one in so many, but so
/// many at least, unless that is more than half of them.
const SPARE: usize = 32;
const LEAST_SPARE: usize = 16;

/// Makes an [`Inspector`] to measure: see [`Inspector::builder`].
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
    pub(super) handle: Handle,
    pub(super) hosts: Hosts,
    pub(super) max_connections: usize,
    pub(super) write_timeout: Duration,
    pub(super) period: Duration,
}

impl Builder {
    pub(super) fn new(handle: &Handle) -> Self {
        let part = descriptor_limit().map_or(u64::MAX, |limit| limit / PART);
        let part = usize::try_from(part).unwrap_or(usize::MAX);
        Self {
            handle: handle.clone(),
            hosts: Hosts::default(),
            max_connections: part.clamp(LEAST, CONNECTIONS),
            write_timeout: Duration::from_secs(10),
            period: Duration::from_millis(250),
        }
    }

    /// Answers requests for this name as well: what a browser is told to open. By default that may
    /// be an IP address or `localhost`; any other name is answered with 421, since it may be
    /// another page's, which leads here to read what it should not (DNS rebinding). A port,
    /// capitals, and a dot at the end do not matter.
    ///
    /// # Errors
    ///
    /// If browsers know no such name: it is empty, a URL or a pattern, or has letters that they
    /// would write in another way (`xn--…`). The error can be made an [`io::Error`], as
    /// [`serve`](Builder::serve) answers.
    pub fn allow_host(mut self, name: impl AsRef<str>) -> Result<Self, InvalidHost> {
        self.hosts.allow(name.as_ref())?;
        Ok(self)
    }

    /// Returns how many clients may be connected; further ones wait in the system's queue. By
    /// default 1,024, or a quarter of the descriptors that the process may have, if that is less.
    /// One in 32, but 16 at least, or half of less than 32, are kept for requests that are answered
    /// at once: who asks for events when all others listen is answered with 503. 2 at least.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count.max(2);
        self
    }

    /// For how long a client may take nothing of what it is sent before its connection is closed.
    /// 10 s by default; zero counts as one millisecond.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Returns how often those who listen to events are sent one. 250 ms by default; less than 10
    /// ms counts as that.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period.max(Duration::from_millis(10));
        self
    }

    /// Starts the inspector, which listens at the first of the addresses that can be had; port 0 is
    /// one that the system chooses.
    ///
    /// # Errors
    ///
    /// If the address cannot be had, the system gives no thread or descriptor, or the runtime has
    /// been shut down.
    pub fn serve(self, addr: impl ToSocketAddrs) -> io::Result<Inspector> {
        let addrs: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
        Inspector::start(self, addrs)
    }

    /// Returns how many may listen to events.
    pub(super) fn max_listeners(&self) -> usize {
        let all = self.max_connections;
        all - all.div_ceil(SPARE).max(LEAST_SPARE).min(all / 2)
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
