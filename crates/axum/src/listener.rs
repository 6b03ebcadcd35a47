//! Sources of connections.

use std::{
    fmt,
    future::{Future, Ready, ready},
    io,
    net::SocketAddr,
    os::unix::net::SocketAddr as UnixAddr,
    pin::Pin,
};

use axum::{
    extract::connect_info::Connected,
    handler::HandlerService,
    routing::{MethodRouter, Router},
};
use hyper::rt::{Read, Write};
use tourbillon::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tourbillon_hyper::TourbillonIo;
use tower_service::Service;

use crate::ack_counter::AckCounter;

/// A source of connections for [`serve`](super::serve).
///
/// [`TcpListener`] and [`UnixListener`] implement it, and so does the result of
/// [`ListenerExt::handshake`]. TLS needs no further implementation.
pub trait Listener: Send + 'static {
    /// The stream that carries HTTP. If a stream implements the traits of futures-io and not those
    /// of hyper, wrap it in [`FuturesIo`](tourbillon_hyper::FuturesIo).
    type Io: Read + Write + Unpin + Send + 'static;

    /// The address of the peer.
    type Addr: Clone + Send + Sync + 'static;

    /// The work before HTTP can be spoken on a connection.
    ///
    /// It runs in the connection's own task, so that a slow client does not delay others. It is
    /// dropped if it exceeds [`header_read_timeout`](super::Serve::header_read_timeout). An error
    /// ends the connection.
    type Handshake: Future<Output = io::Result<Self::Io>> + Send + 'static;

    /// Waits for a connection. Dropping the future while it waits loses no connection.
    ///
    /// # Errors
    ///
    /// Fails if no connection can be accepted. The server then calls this again: at once if the
    /// error concerns one connection (such as `ConnectionAborted`), otherwise after 100 ms.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Handshake, Self::Addr)>> + Send;

    /// Returns the address that this listens at.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    fn local_addr(&self) -> io::Result<Self::Addr>;

    /// Accepts a connection like [`accept`](Self::accept), and also returns the counter of the
    /// bytes that its client has acknowledged. The server calls this function.
    ///
    /// By default it has no counter. A listener of TCP connections should pass one: without it, a
    /// client that takes its response slowly may be taken for one that takes nothing. It works
    /// whatever protocol is between the socket and HTTP. See
    /// [`write_timeout`](super::Serve::write_timeout).
    ///
    /// # Errors
    ///
    /// See [`accept`](Self::accept).
    fn accept_watched(
        &mut self,
    ) -> impl Future<Output = io::Result<(Self::Handshake, Self::Addr, AckCounter)>> + Send {
        async {
            let (handshake, peer) = self.accept().await?;
            Ok((handshake, peer, AckCounter::unknown()))
        }
    }
}

/// Accepted connections send small writes at once (`TCP_NODELAY`).
impl Listener for TcpListener {
    type Io = TourbillonIo<TcpStream>;
    type Addr = SocketAddr;
    type Handshake = Ready<io::Result<TourbillonIo<TcpStream>>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, SocketAddr)> {
        let (handshake, peer, _) = Listener::accept_watched(self).await?;
        Ok((handshake, peer))
    }

    async fn accept_watched(&mut self) -> io::Result<(Self::Handshake, SocketAddr, AckCounter)> {
        let (stream, peer) = Self::accept(self).await?;
        // Replies are written in one piece, so waiting for more data gains nothing. A failure only
        // costs speed.
        let _ = stream.set_nodelay(true);
        let acks = AckCounter::of(&stream);
        Ok((ready(Ok(TourbillonIo::new(stream))), peer, acks))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Listener for UnixListener {
    type Io = TourbillonIo<UnixStream>;
    type Addr = UnixAddr;
    type Handshake = Ready<io::Result<TourbillonIo<UnixStream>>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, UnixAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((ready(Ok(TourbillonIo::new(stream))), peer))
    }

    fn local_addr(&self) -> io::Result<UnixAddr> {
        Self::local_addr(self)
    }
}

/// Extensions for every [`Listener`].
pub trait ListenerExt: Listener + Sized {
    /// Returns a listener whose connections perform a handshake before HTTP, such as that of TLS.
    /// Each handshake runs in its connection's own task.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use futures_rustls::{TlsAcceptor, rustls::ServerConfig};
    /// use tourbillon::net::TcpListener;
    /// use tourbillon_axum::ListenerExt;
    /// use tourbillon_hyper::FuturesIo;
    ///
    /// # async fn example(mut config: ServerConfig, router: axum::Router) -> std::io::Result<()> {
    /// config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    /// let acceptor = TlsAcceptor::from(Arc::new(config));
    /// let listener = TcpListener::bind("127.0.0.1:8443")
    ///     .await?
    ///     .handshake(move |stream| {
    ///         let accepted = acceptor.accept(stream);
    ///         async { Ok(FuturesIo::new(accepted.await?)) }
    ///     });
    /// tourbillon_axum::serve(listener, router).await
    /// # }
    /// ```
    fn handshake<F, Fut, Io>(self, handshake: F) -> Handshake<Self, F>
    where
        F: Fn(Self::Io) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = io::Result<Io>> + Send + 'static,
        Io: Read + Write + Unpin + Send + 'static,
    {
        Handshake {
            listener: self,
            handshake,
        }
    }
}

impl<L: Listener> ListenerExt for L {}

/// The listener of [`ListenerExt::handshake`].
#[derive(Clone)]
pub struct Handshake<L, F> {
    listener: L,
    handshake: F,
}

impl<L, F, Fut, Io> Listener for Handshake<L, F>
where
    L: Listener,
    F: Fn(L::Io) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = io::Result<Io>> + Send + 'static,
    Io: Read + Write + Unpin + Send + 'static,
{
    type Io = Io;
    type Addr = L::Addr;
    type Handshake = Pin<Box<dyn Future<Output = io::Result<Io>> + Send>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, L::Addr)> {
        let (handshake, peer, _) = self.accept_watched().await?;
        Ok((handshake, peer))
    }

    async fn accept_watched(&mut self) -> io::Result<(Self::Handshake, L::Addr, AckCounter)> {
        let (before, peer, acks) = self.listener.accept_watched().await?;
        let handshake = self.handshake.clone();
        // The connection's own task runs the handshake, so that a slow client does not hold up the
        // listener.
        let both = async move {
            let io = before.await?;
            handshake(io).await
        };
        Ok((Box::pin(both), peer, acks))
    }

    fn local_addr(&self) -> io::Result<L::Addr> {
        self.listener.local_addr()
    }
}

impl<L: fmt::Debug, F> fmt::Debug for Handshake<L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// A connection that is about to be served, as passed to the maker of its service.
///
/// For TCP addresses use `into_make_service_with_connect_info::<SocketAddr>()`. For anything else,
/// implement axum's [`Connected`] for your own type:
///
/// ```
/// use axum::extract::connect_info::Connected;
/// use tourbillon::net::UnixListener;
/// use tourbillon_axum::IncomingStream;
///
/// /// The user ID of the peer.
/// #[derive(Clone)]
/// struct User(Option<u32>);
///
/// impl Connected<IncomingStream<'_, UnixListener>> for User {
///     fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
///         User(stream.io().peer_cred().ok().map(|cred| cred.uid()))
///     }
/// }
/// ```
pub struct IncomingStream<'a, L: Listener> {
    pub(crate) io: &'a L::Io,
    pub(crate) remote_addr: L::Addr,
}

impl<L: Listener> IncomingStream<'_, L> {
    /// Returns the connection, after its handshake.
    pub fn io(&self) -> &L::Io {
        self.io
    }

    /// Returns the address of the peer.
    pub fn remote_addr(&self) -> &L::Addr {
        &self.remote_addr
    }
}

impl<L: Listener> fmt::Debug for IncomingStream<'_, L>
where
    L::Addr: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingStream")
            .field("remote_addr", &self.remote_addr)
            .finish_non_exhaustive()
    }
}

/// For every listener with TCP addresses, with or without a handshake.
impl<L: Listener<Addr = SocketAddr>> Connected<IncomingStream<'_, L>> for SocketAddr {
    fn connect_info(stream: IncomingStream<'_, L>) -> Self {
        stream.remote_addr
    }
}

/// Implements the maker of services for types that serve all connections alike: it returns a clone.
macro_rules! clone_for_each_connection {
    ($Service:ty, $to_service:expr, $($of:ident),*) => {
        impl<L: Listener, $($of),*> Service<IncomingStream<'_, L>> for $Service
        where
            Self: Clone,
        {
            type Response = Self;
            type Error = std::convert::Infallible;
            type Future = Ready<Result<Self, std::convert::Infallible>>;

            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Self::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: IncomingStream<'_, L>) -> Self::Future {
                ready(Ok($to_service(self)))
            }
        }
    };
}

// `with_state` adds the fallback once per connection. Otherwise this would happen for each request.
clone_for_each_connection!(Router, |router: &Router| router.clone().with_state(()),);
clone_for_each_connection!(MethodRouter, MethodRouter::clone,);
clone_for_each_connection!(HandlerService<H, T, ()>, HandlerService::clone, H, T);
