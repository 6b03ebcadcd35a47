//! The servers: one function, for each runtime.

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
use tourbillon::hyper::TourbillonTimer;

use super::Load;
use crate::{
    runtimes::{Runtime, Smol, Tokio, Tourbillon},
    system::System,
    workload::refuse,
};

const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const DELAY: Duration = Duration::from_millis(100);
const ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A runtime with its sockets, as hyper wants them.
trait Net: Runtime {
    type Listener: Send + Sync;
    type Stream: rt::Read + rt::Write + Unpin + Send + 'static;

    fn bind() -> impl Future<Output = io::Result<(Self::Listener, SocketAddr)>> + Send;

    /// With `TCP_NODELAY`.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    fn timer() -> impl rt::Timer + Send + Sync + 'static;
}

/// Serves until standard input ends; prints where.
pub fn serve(system: System, load: &'static Load) -> ! {
    thread::spawn(|| {
        // When reading ends, even with an error, the parent is gone.
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

/// Answers why it ended.
async fn listen<N: Net>(load: &'static Load) -> io::Error {
    let listener = match N::bind().await {
        Ok((listener, addr)) => {
            println!("listening on {addr}");
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
        .header_read_timeout(load.has_header_timeout.then_some(HEADER_TIMEOUT))
        .serve_connection(stream, service)
        .await;
}

impl Net for Tourbillon {
    type Listener = tourbillon::net::TcpListener;
    type Stream = tourbillon::net::TcpStream;

    async fn bind() -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = tourbillon::net::TcpListener::bind(ADDR).await?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
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
