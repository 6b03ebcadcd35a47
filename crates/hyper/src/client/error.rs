//! The error of the connectors.

use std::{error::Error, fmt, io, net::SocketAddr, path::PathBuf, time::Duration};

use hyper::Uri;

/// The reason why [`HttpConnector`](super::HttpConnector) or
/// [`UnixConnector`](super::UnixConnector) made no connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URI has no scheme or no host.
    Incomplete {
        /// The URI.
        uri: Uri,
    },
    /// The URI's scheme is not `http`, and
    /// [`enforce_http`](super::HttpConnector::enforce_http) is on.
    NotHttp {
        /// The scheme.
        scheme: String,
    },
    /// The system found no address of the host.
    Lookup {
        /// The host's name.
        host: String,
        /// The error of the lookup.
        source: io::Error,
    },
    /// The host has no address of the family of
    /// [`set_local_address`](super::HttpConnector::set_local_address).
    OtherFamily {
        /// The host's name.
        host: String,
    },
    /// No address of the host accepted a connection.
    Address {
        /// The address whose attempt was the last one to fail.
        addr: SocketAddr,
        /// The error of this attempt.
        source: io::Error,
    },
    /// There was no connection within the
    /// [`connect_timeout`](super::HttpConnector::set_connect_timeout).
    TimedOut {
        /// The host's name.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// The Unix socket did not accept a connection.
    Path {
        /// The path of the socket.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { uri } => write!(
                f,
                "the URI `{uri}` has no scheme or no host: write it as in `http://example.org/`"
            ),
            Self::NotHttp { scheme } => write!(
                f,
                "the scheme is `{scheme}`, not `http`: turn `enforce_http` off in a connector \
                 below TLS"
            ),
            Self::Lookup { host, source } => write!(f, "no address of {host} was found: {source}"),
            Self::OtherFamily { host } => write!(
                f,
                "{host} has no address of the local address's family: set a local address of \
                 IPv4 and one of IPv6"
            ),
            Self::Address { addr, source } => write!(f, "{addr} was not reached: {source}"),
            Self::TimedOut { host, limit } => {
                write!(f, "{host} accepted no connection within {limit:?}")
            }
            Self::Path { path, source } => write!(f, "{path:?} was not reached: {source}"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Lookup { source, .. }
            | Self::Address { source, .. }
            | Self::Path { source, .. } => Some(source),
            _ => None,
        }
    }
}
