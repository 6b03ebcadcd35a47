//! HTTP clients on this runtime, without tokio's: hyper-util's with our connectors, over TCP, Unix
//! sockets and TLS, and tonic's.

use tourbillon_support as common;
use tourbillon_web as web;

mod connector;
mod grpc;
mod https;
mod pool;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::client::legacy::{Builder, Client};
use tourbillon_hyper::{HttpConnector, TourbillonExecutor, TourbillonTimer};

/// The body of requests.
type Body = Full<Bytes>;

/// The options of a client that spawns and sleeps here.
fn builder() -> Builder {
    let mut builder = Client::builder(TourbillonExecutor::new());
    builder
        .timer(TourbillonTimer::new())
        .pool_timer(TourbillonTimer::new());
    builder
}

fn client() -> Client<HttpConnector, Body> {
    builder().build(HttpConnector::new())
}
