//! Connectors for HTTP clients, and hyper-util's description of our connections.

mod connector;
mod error;
mod race;

use std::{
    future::Future,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tourbillon::net::{TcpStream, UnixStream};
use tower_service::Service;

pub use self::{connector::HttpConnector, error::ConnectError};
use crate::TourbillonIo;

/// The future of a connector.
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, ConnectError>> + Send>>;

/// The addresses of a TCP connection, in the extensions of each response that hyper-util's client
/// receives over it.
///
/// It is there if the response of the connector is a [`TourbillonIo<TcpStream>`](TourbillonIo) or
/// wraps one, as that of hyper-rustls does.
///
/// ```
/// use hyper::Response;
/// use tourbillon_hyper::HttpInfo;
///
/// fn print_peer<B>(response: &Response<B>) {
///     if let Some(info) = response.extensions().get::<HttpInfo>() {
///         println!("answered by {}", info.remote_addr());
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpInfo {
    remote_addr: SocketAddr,
    local_addr: SocketAddr,
}

impl HttpInfo {
    /// Returns the server's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote_addr
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

impl Connection for TourbillonIo<TcpStream> {
    /// Returns a description with an [`HttpInfo`].
    fn connected(&self) -> Connected {
        match (self.peer_addr(), self.local_addr()) {
            (Ok(remote_addr), Ok(local_addr)) => Connected::new().extra(HttpInfo {
                remote_addr,
                local_addr,
            }),
            // The peer has closed the connection already.
            _ => Connected::new(),
        }
    }
}

impl Connection for TourbillonIo<UnixStream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// A connector to the Unix socket at a path, for hyper-util's and tonic's clients.
///
/// It ignores the URI, whose host is still sent to the server. A path that begins with a NUL byte
/// is an abstract name.
///
/// ```
/// use http_body_util::{BodyExt, Empty};
/// use hyper::body::Bytes;
/// use hyper_util::client::legacy::Client;
/// use tourbillon_hyper::{TourbillonExecutor, UnixConnector};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let connector = UnixConnector::new("/run/docker.sock");
/// let client = Client::builder(TourbillonExecutor::new()).build::<_, Empty<Bytes>>(connector);
/// let response = client.get("http://localhost/version".parse()?).await?;
/// println!("{:?}", response.into_body().collect().await?.to_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct UnixConnector {
    path: Arc<Path>,
}

impl UnixConnector {
    /// Creates a connector to the socket at `path`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().into(),
        }
    }
}

impl Service<Uri> for UnixConnector {
    type Response = TourbillonIo<UnixStream>;
    type Error = ConnectError;
    type Future = Connecting<TourbillonIo<UnixStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.path.clone();
        Box::pin(async move {
            let connected = UnixStream::connect(&path).await;
            let failed = |source| ConnectError::Path {
                path: path.to_path_buf(),
                source,
            };
            connected.map(TourbillonIo::new).map_err(failed)
        })
    }
}
