//! The server process: one generic function for all runtimes.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process, thread,
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{Response, body::Bytes, rt, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use smol_hyper::rt::{FuturesIo, SmolTimer};
use tourbillon_hyper::{TourbillonIo, TourbillonTimer};
use tourbillon_support::say::say;

use super::Load;
use crate::{
    runtimes::{Runtime, Smol, Tokio, Tourbillon},
    system::System,
    workload::refuse,
};

/// Time limit for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Sleep before a delayed response.
const DELAY: Duration = Duration::from_millis(100);
/// Address to listen on: the kernel chooses the port.
const ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A runtime whose sockets and timer work with hyper.
trait Net: Runtime {
    type Listener: Send + Sync;
    type Stream: rt::Read + rt::Write + Unpin + Send + 'static;

    /// Binds a listener to [`ADDR`], and returns it with its actual address.
    fn bind() -> impl Future<Output = io::Result<(Self::Listener, SocketAddr)>> + Send;

    /// Accepts a connection, and sets `TCP_NODELAY` on it.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Returns the timer that hyper uses for its timeouts.
    fn timer() -> impl rt::Timer + Send + Sync + 'static;
}

/// Serves `load` on `system` until standard input ends. Prints the address that the server
/// listens on.
///
/// Calls [`refuse`] if the server cannot listen or accept.
pub fn serve(system: System, load: &'static Load) -> ! {
    thread::spawn(|| {
        // The parent process holds the other end. When reading ends, even with an error, the
        // parent process is gone.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0)
    });
    let ended = match system {
        System::Tourbillon => Tourbillon::new(|builder| builder).run(listen::<Tourbillon>(load)),
        System::Tokio => Tokio::new(|builder| builder).run(listen::<Tokio>(load)),
        System::TokioAlt => {
            Tokio::new(|builder| builder.enable_alt_timer()).run(listen::<Tokio>(load))
        }
        System::Smol => Smol::new().run(listen::<Smol>(load)),
        _ => refuse("hyper does not run on it"),
    };
    refuse(ended)
}

/// Accepts connections, and serves each in a task of its own. Returns only on an error.
async fn listen<N: Net>(load: &'static Load) -> io::Error {
    let listener = match N::bind().await {
        Ok((listener, addr)) => {
            say(format_args!("listening on {addr}"));
            listener
        }
        Err(error) => return error,
    };
    loop {
        match N::accept(&listener).await {
            Ok(stream) => N::spawn(connection::<N>(stream, load)),
            Err(error) => return error,
        }
    }
}

/// Serves the requests of one connection.
async fn connection<N: Net>(stream: N::Stream, load: &Load) {
    let service = service_fn(|_| async {
        if load.is_delayed {
            N::sleep_until(Instant::now() + DELAY).await;
        }
        let body = Full::new(Bytes::from_static(b"Hello, World!"));
        Ok::<_, Infallible>(Response::new(body))
    });
    // Ignore the error: each connection ends when the client closes it.
    let _ = http1::Builder::new()
        .timer(N::timer())
        // `None` disables the timeout, which hyper would otherwise set to 30 s.
        .header_read_timeout(load.has_header_timeout.then_some(HEADER_TIMEOUT))
        .serve_connection(stream, service)
        .await;
}

impl Net for Tourbillon {
    type Listener = tourbillon::net::TcpListener;
    type Stream = TourbillonIo<tourbillon::net::TcpStream>;

    async fn bind() -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = tourbillon::net::TcpListener::bind(ADDR).await?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(TourbillonIo::new(stream))
    }

    fn timer() -> impl rt::Timer + Send + Sync + 'static {
        TourbillonTimer::new()
    }
}

impl Net for Tokio {
    type Listener = tokio::net::TcpListener;
    type Stream = TokioIo<tokio::net::TcpStream>;

    async fn bind() -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = tokio::net::TcpListener::bind(ADDR).await?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    }

    fn timer() -> impl rt::Timer + Send + Sync + 'static {
        TokioTimer::new()
    }
}

impl Net for Smol {
    type Listener = smol::net::TcpListener;
    type Stream = FuturesIo<smol::net::TcpStream>;

    async fn bind() -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = smol::net::TcpListener::bind(ADDR).await?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(FuturesIo::new(stream))
    }

    fn timer() -> impl rt::Timer + Send + Sync + 'static {
        SmolTimer::new()
    }
}
