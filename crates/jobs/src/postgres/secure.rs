//! Asks a server for TLS, and encrypts the connection.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tourbillon::net::TcpStream;

use crate::tls::{Client, Encrypted, TlsError, binding};

/// The name by which a server learns what is to be encrypted.
pub(super) const PROTOCOL: &[u8] = b"postgresql";

/// A request for TLS: its length, and its code.
const ASK: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// How to encrypt a connection.
pub(super) struct Secure {
    pub(super) client: Client,
    /// The server's name.
    pub(super) name: String,
    /// Whether the connection begins with TLS, without asking first.
    pub(super) is_direct: bool,
    /// Whether a server without TLS will do.
    pub(super) is_optional: bool,
}

impl TlsConnect<TcpStream> for Secure {
    type Stream = Secured;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Secured, TlsError>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            if !self.is_direct && !ask(&stream).await? {
                return match self.is_optional {
                    true => Ok(Secured::Plain(stream)),
                    false => Err(TlsError::NotOffered),
                };
            }
            let made = self.client.encrypt(&self.name, stream).await?;
            // As in libpq: nobody has said yet that this is a server of PostgreSQL.
            if self.is_direct && made.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
                return Err(failed(
                    "the server has not chosen the protocol `postgresql` (ALPN), which \
                     `sslnegotiation=direct` needs; it may be older than PostgreSQL 17",
                ));
            }
            Ok(Secured::Encrypted(Box::new(made)))
        })
    }
}

fn failed(why: &'static str) -> TlsError {
    TlsError::Failed(Arc::new(io::Error::other(why)))
}

/// Returns whether a server has TLS.
async fn ask(mut stream: &TcpStream) -> Result<bool, TlsError> {
    use futures_lite::{AsyncReadExt, AsyncWriteExt};
    // Read nothing behind the answer: what comes there is not encrypted.
    let mut answer = [0];
    let asked = async {
        stream.write_all(&ASK).await?;
        stream.flush().await?;
        stream.read_exact(&mut answer).await
    };
    asked
        .await
        .map_err(|error| TlsError::Failed(Arc::new(error)))?;
    match &answer {
        b"S" => Ok(true),
        b"N" => Ok(false),
        // It may be an error of the server. Anybody could have sent its text, so leave that unread.
        _ => Err(failed(
            "the server answered neither yes nor no to the request for TLS",
        )),
    }
}

/// A connection that has TLS unless the server has none.
pub(super) enum Secured {
    Plain(TcpStream),
    Encrypted(Box<Encrypted>),
}

/// Calls a method of the stream within.
macro_rules! within {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match $stream.get_mut() {
            Secured::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Secured::Encrypted(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Secured {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        within!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        within!(self, poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        within!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        within!(self, poll_shutdown(cx))
    }
}

impl TlsStream for Secured {
    fn channel_binding(&self) -> ChannelBinding {
        let Self::Encrypted(stream) = self else {
            return ChannelBinding::none();
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        match certificates.first().and_then(|first| binding(first)) {
            Some(binding) => ChannelBinding::tls_server_end_point(binding),
            None => ChannelBinding::none(),
        }
    }
}
