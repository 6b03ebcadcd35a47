//! Where connections come from.

use std::{
    fmt,
    future::{Future, Ready, ready},
    io,
    net::SocketAddr,
    os::unix::net::SocketAddr as UnixAddr,
    pin::Pin,
};

use ::axum::{
    extract::connect_info::Connected,
    handler::HandlerService,
    routing::{MethodRouter, Router},
};
use ::hyper::rt::{Read, Write};
use tower_service::Service;

use crate::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sys::socket::AckCounter,
};

/// What [`serve`](super::serve) accepts connections from.
///
/// [`TcpListener`] and [`UnixListener`] are such, and what [`ListenerExt::handshake`] makes of
/// them: for TLS nothing has to be implemented.
pub trait Listener: Send + 'static {
    /// A connection that HTTP is spoken on. For a stream that has the traits of futures-io and not
    /// hyper's there is [`FuturesIo`](crate::hyper::FuturesIo).
    type Io: Read + Write + Unpin + Send + 'static;

    /// Who is at the other end.
    type Addr: Clone + Send + Sync + 'static;

    /// What a connection does before HTTP can be spoken on it. It runs in the connection's own
    /// task, so that a client which takes its time holds up no other, and is dropped if it takes
    /// longer than [`header_read_timeout`](super::Serve::header_read_timeout). An error ends the
    /// connection.
    type Handshake: Future<Output = io::Result<Self::Io>> + Send + 'static;

    /// Waits for a connection. The future may be dropped while it waits, and another one be asked
    /// for.
    ///
    /// # Errors
    ///
    /// If there is none to be had, now: this is called again, at once if the error concerns one
    /// connection alone (such as `ConnectionAborted`), and otherwise after 100 ms.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Handshake, Self::Addr)>> + Send;

    /// The address that this listens at.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    fn local_addr(&self) -> io::Result<Self::Addr>;

    /// Accepts as [`accept`](Self::accept) does, and says how the server learns what the client
    /// takes, whatever speaks between the socket and HTTP.
    #[doc(hidden)]
    fn accept_watched(
        &mut self,
    ) -> impl Future<Output = io::Result<(Self::Handshake, Self::Addr, Client)>> + Send {
        async {
            let (handshake, peer) = self.accept().await?;
            Ok((handshake, peer, Client(None)))
        }
    }
}

/// What is known of how much a client takes. None if its socket cannot be asked.
#[derive(Clone, Copy, Debug)]
pub struct Client(Option<AckCounter>);

impl Client {
    /// That of a connection of TCP.
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(AckCounter::of(stream))
    }

    /// Returns how many bytes the client's system has acknowledged, from the beginning.
    pub(super) fn taken(&self) -> Option<u64> {
        self.0?.bytes()
    }
}

/// Each connection sends small writes at once (`TCP_NODELAY`).
impl Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;
    type Handshake = Ready<io::Result<TcpStream>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, SocketAddr)> {
        let (handshake, peer, _) = Listener::accept_watched(self).await?;
        Ok((handshake, peer))
    }

    async fn accept_watched(&mut self) -> io::Result<(Self::Handshake, SocketAddr, Client)> {
        let (stream, peer) = Self::accept(self).await?;
        // A reply is written in one go, and nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        let client = Client::of(&stream);
        Ok((ready(Ok(stream)), peer, client))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Listener for UnixListener {
    type Io = UnixStream;
    type Addr = UnixAddr;
    type Handshake = Ready<io::Result<UnixStream>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, UnixAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((ready(Ok(stream)), peer))
    }

    fn local_addr(&self) -> io::Result<UnixAddr> {
        Self::local_addr(self)
    }
}

/// What can be made of any [`Listener`].
pub trait ListenerExt: Listener + Sized {
    /// A listener whose connections do something before HTTP is spoken on them, such as a TLS
    /// handshake: each in a task of its own.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use futures_rustls::{TlsAcceptor, rustls::ServerConfig};
    /// use tourbillon::{axum::ListenerExt, hyper::FuturesIo, net::TcpListener};
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
    /// tourbillon::axum::serve(listener, router).await
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

    async fn accept_watched(&mut self) -> io::Result<(Self::Handshake, L::Addr, Client)> {
        let (before, peer, client) = self.listener.accept_watched().await?;
        let handshake = self.handshake.clone();
        let both = async move {
            let io = before.await?;
            handshake(io).await
        };
        Ok((Box::pin(both), peer, client))
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

/// A connection that is about to be served, as who makes a service for it sees it.
///
/// For addresses of TCP there is `into_make_service_with_connect_info::<SocketAddr>()`; for
/// anything else implement axum's [`Connected`] for a type of yours:
///
/// ```
/// use axum::extract::connect_info::Connected;
/// use tourbillon::{axum::IncomingStream, net::UnixListener};
///
/// /// The user at the other end.
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
    pub(super) io: &'a L::Io,
    pub(super) remote_addr: L::Addr,
}

impl<L: Listener> IncomingStream<'_, L> {
    /// The connection, after its handshake.
    pub fn io(&self) -> &L::Io {
        self.io
    }

    /// Who is at the other end.
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

/// Of whatever listens at TCP addresses, with a handshake or without.
impl<L: Listener<Addr = SocketAddr>> Connected<IncomingStream<'_, L>> for SocketAddr {
    fn connect_info(stream: IncomingStream<'_, L>) -> Self {
        stream.remote_addr
    }
}

/// For what serves all connections alike: its service is a clone of it.
macro_rules! serves_all_alike {
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

// Once for the connection, and not for each of its requests, the router's fallback is put in.
serves_all_alike!(Router, |router: &Router| router.clone().with_state(()),);
serves_all_alike!(MethodRouter, MethodRouter::clone,);
serves_all_alike!(HandlerService<H, T, ()>, HandlerService::clone, H, T);
