//! The servers. They differ only in the runtime.

use std::{convert::Infallible, error::Error, time::Duration};

use http_body_util::Full;
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tourbillon::hyper::TourbillonTimer;

const WORKERS: usize = 2;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// The reply of a server, and the number of its clients.
pub struct Load {
    pub name: &'static str,
    pub connections: &'static str,
    header_timeout: Option<Duration>,
    delay: Option<Duration>,
}

pub const LOADS: &[Load] = &[
    Load {
        name: "hello",
        connections: "64",
        header_timeout: None,
        delay: None,
    },
    Load {
        name: "header-timeout",
        connections: "64",
        header_timeout: Some(HEADER_TIMEOUT),
        delay: None,
    },
    Load {
        name: "delayed",
        connections: "2000",
        header_timeout: None,
        delay: Some(Duration::from_millis(100)),
    },
];

/// A runtime with its sockets and sleeps.
pub struct System {
    pub name: &'static str,
    serve: fn(&'static Load) -> Result<(), Box<dyn Error>>,
}

/// Tourbillon first, the runtime to compare it with last.
pub const SYSTEMS: &[System] = &[
    System {
        name: "tourbillon",
        serve: |load| tourbillon_runtime()?.block_on(on_tourbillon(load)),
    },
    System {
        name: "tokio",
        serve: |load| tokio_runtime()?.block_on(on_tokio(load)),
    },
];

/// Serves until the process is killed, and prints the address.
pub fn serve(system: &str, load: &str) -> Result<(), Box<dyn Error>> {
    let system = SYSTEMS.iter().find(|it| it.name == system);
    let load = LOADS.iter().find(|it| it.name == load);
    (system.ok_or("no such system")?.serve)(load.ok_or("no such load")?)
}

fn hello() -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(
        b"Hello, World!",
    ))))
}

fn tourbillon_runtime() -> Result<tourbillon::Runtime, Box<dyn Error>> {
    let builder = tourbillon::Runtime::builder().worker_threads(WORKERS);
    Ok(builder.build()?)
}

async fn on_tourbillon(load: &'static Load) -> Result<(), Box<dyn Error>> {
    let listener = tourbillon::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let accept = tourbillon::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tourbillon::spawn(async move {
                let _ = stream.set_nodelay(true);
                let service = service_fn(|_| async {
                    if let Some(delay) = load.delay {
                        tourbillon::time::sleep(delay).await;
                    }
                    hello()
                });
                // An error means that the client closed the connection.
                let _ = http1::Builder::new()
                    .timer(TourbillonTimer::new())
                    .header_read_timeout(load.header_timeout)
                    .serve_connection(stream, service)
                    .await;
            });
        }
    });
    Ok(accept.await?)
}

fn tokio_runtime() -> Result<tokio::runtime::Runtime, Box<dyn Error>> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(WORKERS).enable_all().build()?)
}

async fn on_tokio(load: &'static Load) -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let accept = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let service = service_fn(|_| async {
                    if let Some(delay) = load.delay {
                        tokio::time::sleep(delay).await;
                    }
                    hello()
                });
                // An error means that the client closed the connection.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(load.header_timeout)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(accept.await?)
}
