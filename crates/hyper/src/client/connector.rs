//! The connector over TCP.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use socket2::{SockRef, TcpKeepalive};
use tourbillon::{
    net::{TcpSocket, TcpStream, lookup_host},
    time::timeout,
};
use tower_service::Service;

use super::{
    Connecting,
    error::ConnectError,
    race::{race, take_turns},
};
use crate::TourbillonIo;

/// A connector over TCP, for hyper-util's and tonic's clients.
///
/// It replaces hyper-util's connector of this name, which needs tokio's runtime, and its options
/// have the same names. Host names are resolved like those of
/// [`lookup_host`]. The port is 80 if the URI has none, or 443 if its
/// scheme is `https`. Each response has an [`HttpInfo`](super::HttpInfo) in its extensions.
///
/// ```
/// use std::time::Duration;
/// use http_body_util::{BodyExt, Empty};
/// use hyper::body::Bytes;
/// use hyper_util::client::legacy::Client;
/// use tourbillon_hyper::{HttpConnector, TourbillonExecutor, TourbillonTimer};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut connector = HttpConnector::new();
/// connector.set_connect_timeout(Some(Duration::from_secs(5)));
/// let client = Client::builder(TourbillonExecutor::new())
///     .timer(TourbillonTimer::new())
///     .pool_timer(TourbillonTimer::new())
///     .build::<_, Empty<Bytes>>(connector);
/// let response = client.get("http://example.org/".parse()?).await?;
/// println!("{} bytes", response.into_body().collect().await?.to_bytes().len());
/// # Ok(())
/// # }
/// ```
///
/// Clones share the options until one of them is changed.
#[derive(Clone, Debug)]
pub struct HttpConnector {
    config: Arc<Config>,
}

#[derive(Clone, Debug)]
struct Config {
    enforce_http: bool,
    connect_timeout: Option<Duration>,
    happy_eyeballs_timeout: Option<Duration>,
    local_v4: Option<Ipv4Addr>,
    local_v6: Option<Ipv6Addr>,
    interface: Option<String>,
    nodelay: bool,
    keepalive: Option<Duration>,
    keepalive_interval: Option<Duration>,
    keepalive_retries: Option<u32>,
    user_timeout: Option<Duration>,
    send_buffer_size: Option<usize>,
    recv_buffer_size: Option<usize>,
}

impl Default for HttpConnector {
    fn default() -> Self {
        Self::new()
    }
}

impl HttpConnector {
    /// Creates a connector with the default of each option.
    pub fn new() -> Self {
        Self {
            config: Arc::new(Config {
                enforce_http: true,
                connect_timeout: None,
                happy_eyeballs_timeout: Some(Duration::from_millis(300)),
                local_v4: None,
                local_v6: None,
                interface: None,
                nodelay: false,
                keepalive: None,
                keepalive_interval: None,
                keepalive_retries: None,
                user_timeout: None,
                send_buffer_size: None,
                recv_buffer_size: None,
            }),
        }
    }

    fn config(&mut self) -> &mut Config {
        Arc::make_mut(&mut self.config)
    }

    /// Sets whether other schemes than `http` are errors. On by default. Turn it off in a connector
    /// below TLS.
    pub fn enforce_http(&mut self, enforce: bool) {
        self.config().enforce_http = enforce;
    }

    /// Sets a limit on connecting: the lookup of the host and all of its addresses. `None`, the
    /// default, leaves it to the system.
    ///
    /// hyper-util's connector does not count the lookup, and divides the time between the
    /// addresses.
    pub fn set_connect_timeout(&mut self, limit: Option<Duration>) {
        self.config().connect_timeout = limit;
    }

    /// Sets how long an address may take before the next one is attempted beside it. The default
    /// is 300 ms.
    ///
    /// IPv4 and IPv6 take turns, and the first connection is used: the *happy eyeballs* of RFC
    /// 8305. With `None`, the next address is attempted only when the one before it has failed, in
    /// the order of the lookup.
    pub fn set_happy_eyeballs_timeout(&mut self, delay: Option<Duration>) {
        self.config().happy_eyeballs_timeout = delay;
    }

    /// Sets the local address of all connections. Only addresses of its family are then attempted.
    /// With `None`, the default, the system chooses it.
    pub fn set_local_address(&mut self, addr: Option<IpAddr>) {
        let (v4, v6) = match addr {
            Some(IpAddr::V4(v4)) => (Some(v4), None),
            Some(IpAddr::V6(v6)) => (None, Some(v6)),
            None => (None, None),
        };
        (self.config().local_v4, self.config().local_v6) = (v4, v6);
    }

    /// Sets a local address for each family. See
    /// [`set_local_address`](HttpConnector::set_local_address).
    pub fn set_local_addresses(&mut self, v4: Ipv4Addr, v6: Ipv6Addr) {
        (self.config().local_v4, self.config().local_v6) = (Some(v4), Some(v6));
    }

    /// Sets the network interface of all connections (`SO_BINDTODEVICE`).
    pub fn set_interface(&mut self, interface: impl Into<String>) {
        self.config().interface = Some(interface.into());
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`). Off by default.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.config().nodelay = nodelay;
    }

    /// Sets how long a connection is idle before the system probes it (`TCP_KEEPIDLE`), in whole
    /// seconds.
    ///
    /// The system probes no connection if this, the
    /// [interval](HttpConnector::set_keepalive_interval) and the
    /// [number](HttpConnector::set_keepalive_retries) are all `None`, which is the default.
    pub fn set_keepalive(&mut self, idle: Option<Duration>) {
        self.config().keepalive = idle;
    }

    /// Sets the time between two probes of an idle connection (`TCP_KEEPINTVL`), in whole seconds.
    pub fn set_keepalive_interval(&mut self, interval: Option<Duration>) {
        self.config().keepalive_interval = interval;
    }

    /// Sets how many probes in a row may stay unanswered before the connection is closed
    /// (`TCP_KEEPCNT`).
    pub fn set_keepalive_retries(&mut self, retries: Option<u32>) {
        self.config().keepalive_retries = retries;
    }

    /// Sets how long sent data may stay unacknowledged before the connection is closed
    /// (`TCP_USER_TIMEOUT`).
    pub fn set_tcp_user_timeout(&mut self, limit: Option<Duration>) {
        self.config().user_timeout = limit;
    }

    /// Sets the size of the send buffer (`SO_SNDBUF`).
    pub fn set_send_buffer_size(&mut self, size: Option<usize>) {
        self.config().send_buffer_size = size;
    }

    /// Sets the size of the receive buffer (`SO_RCVBUF`).
    pub fn set_recv_buffer_size(&mut self, size: Option<usize>) {
        self.config().recv_buffer_size = size;
    }
}

impl Service<Uri> for HttpConnector {
    type Response = TourbillonIo<TcpStream>;
    type Error = ConnectError;
    type Future = Connecting<TourbillonIo<TcpStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let config = self.config.clone();
        Box::pin(async move {
            let (host, port) = config.destination(&uri)?;
            let connecting = config.connect(host, port);
            let connected = match config.connect_timeout {
                None => connecting.await,
                Some(limit) => {
                    let timed_out = |_| ConnectError::TimedOut {
                        host: host.to_owned(),
                        limit,
                    };
                    timeout(limit, connecting).await.map_err(timed_out)?
                }
            };
            connected.map(TourbillonIo::new)
        })
    }
}

impl Config {
    /// Returns the host and the port of a URI.
    fn destination<'a>(&self, uri: &'a Uri) -> Result<(&'a str, u16), ConnectError> {
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(ConnectError::Incomplete { uri: uri.clone() });
        };
        if self.enforce_http && scheme != "http" {
            return Err(ConnectError::NotHttp {
                scheme: scheme.to_owned(),
            });
        }
        let default = if scheme == "https" { 443 } else { 80 };
        // An address of IPv6 stands in brackets, which are no part of it.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok((host, uri.port_u16().unwrap_or(default)))
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        // 1. Look the host up, and leave out what a local address cannot reach.
        let found = lookup_host((host, port)).await;
        let found = found.map_err(|source| ConnectError::Lookup {
            host: host.to_owned(),
            source,
        })?;
        let mut addrs: Vec<_> = found.filter(|addr| self.can_reach(addr)).collect();
        // 2. The families take turns, so that one that does not work costs one delay.
        if self.happy_eyeballs_timeout.is_some() {
            addrs = take_turns(addrs);
        }
        // 3. Use the first connection.
        let connected = race(addrs, self.happy_eyeballs_timeout, |addr| {
            self.attempt(addr)
        });
        connected.await.map_err(|failed| match failed {
            Some((addr, source)) => ConnectError::Address { addr, source },
            // The resolver returns at least one address or an error.
            None => ConnectError::OtherFamily {
                host: host.to_owned(),
            },
        })
    }

    /// Returns whether the local address, if there is one, is of the family of `addr`.
    fn can_reach(&self, addr: &SocketAddr) -> bool {
        let has_local = self.local_v4.is_some() || self.local_v6.is_some();
        !has_local || self.local(addr).is_some()
    }

    /// Returns the local address for connections to `addr`.
    fn local(&self, addr: &SocketAddr) -> Option<IpAddr> {
        match addr {
            SocketAddr::V4(_) => self.local_v4.map(IpAddr::V4),
            SocketAddr::V6(_) => self.local_v6.map(IpAddr::V6),
        }
    }

    async fn attempt(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        self.socket(&addr)?.connect(addr).await
    }

    /// Creates a socket with the options, for a connection to `addr`.
    fn socket(&self, addr: &SocketAddr) -> io::Result<TcpSocket> {
        let socket = match addr {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        let options = SockRef::from(&socket);
        if let Some(interface) = &self.interface {
            options.bind_device(Some(interface.as_bytes()))?;
        }
        if let Some(local) = self.local(addr) {
            socket.bind((local, 0).into())?;
        }
        // The sizes of the buffers limit the window, which is chosen when the connection is made.
        if let Some(size) = self.send_buffer_size {
            options.set_send_buffer_size(size)?;
        }
        if let Some(size) = self.recv_buffer_size {
            options.set_recv_buffer_size(size)?;
        }
        if let Some(keepalive) = self.keepalive_options() {
            options.set_tcp_keepalive(&keepalive)?;
        }
        if self.user_timeout.is_some() {
            options.set_tcp_user_timeout(self.user_timeout)?;
        }
        if self.nodelay {
            options.set_tcp_nodelay(true)?;
        }
        Ok(socket)
    }

    /// Returns the options of the probes, or `None` if there are to be none.
    fn keepalive_options(&self) -> Option<TcpKeepalive> {
        let is_set = self.keepalive.is_some()
            || self.keepalive_interval.is_some()
            || self.keepalive_retries.is_some();
        let mut options = TcpKeepalive::new();
        if let Some(idle) = self.keepalive {
            options = options.with_time(idle);
        }
        if let Some(interval) = self.keepalive_interval {
            options = options.with_interval(interval);
        }
        if let Some(retries) = self.keepalive_retries {
            options = options.with_retries(retries);
        }
        is_set.then_some(options)
    }
}
