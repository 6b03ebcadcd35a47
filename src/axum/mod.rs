//! axum's routers on this runtime: [`serve`] in place of `axum::serve`, which needs tokio's.
//!
//! ```
//! use std::{net::SocketAddr, time::Duration};
//! use axum::{Json, Router, extract::ConnectInfo, routing::get};
//! use tourbillon::{net::TcpListener, time::sleep};
//!
//! async fn hello(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Json<String> {
//!     sleep(Duration::from_millis(5)).await;
//!     Json(format!("hello, {peer}"))
//! }
//!
//! # async fn example() -> std::io::Result<()> {
//! let router = Router::new().route("/", get(hello));
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! let service = router.into_make_service_with_connect_info::<SocketAddr>();
//! tourbillon::axum::serve(listener, service)
//!     .keep_alive_timeout(Duration::from_secs(60))
//!     .await
//! # }
//! ```
//!
//! Routers, extractors, responses and the middleware of axum need no runtime, and gRPC by `tonic`
//! is a router, too. So are most layers of tower's. These ask for tokio's runtime, and **panic**
//! here:
//!
//! | what panics | what does it here |
//! |---|---|
//! | `axum::serve` | [`serve`] |
//! | `Sse::keep_alive` | [`keep_alive`] |
//! | the timeout layers of `tower` and `tower-http` | a function as below |
//! | `rate_limit`, `buffer` of `tower` | nothing of ours |
//! | `on_upgrade` of `extract::ws` | `hyper::upgrade::on`, in a task of [`spawn`](crate::spawn) |
//!
//! A timeout, as middleware:
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, extract::Request, http::StatusCode, middleware::{self, Next}};
//! use axum::{response::Response, routing::get};
//! use tourbillon::time::timeout;
//!
//! async fn in_time(request: Request, next: Next) -> Result<Response, StatusCode> {
//!     timeout(Duration::from_secs(10), next.run(request))
//!         .await
//!         .map_err(|_| StatusCode::GATEWAY_TIMEOUT)
//! }
//!
//! let router: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(middleware::from_fn(in_time));
//! ```
//!
//! # What goes wrong
//!
//! | what | what happens |
//! |---|---|
//! | a client sends no request, or sends it slowly | its connection is closed: [`Serve::header_read_timeout`], [`Serve::keep_alive_timeout`] |
//! | a head that is too large | 431, and the connection is closed: 100 headers, or 64 KiB ([`Serve::max_buf_size`]) |
//! | no HTTP at all | 400 or nothing, and the connection is closed |
//! | a client goes away | its handlers are dropped where they wait |
//! | a client closes its writing half | likewise, unless it may: [`Serve::half_close`] |
//! | a client does not take its response, or takes it very slowly | its connection is closed, or, by HTTP/2, its stream is reset: [`Serve::write_timeout`] |
//! | a client sends a request's body very slowly, or stops in its midst | the body ends with an error: [`Serve::request_body_timeout`] |
//! | a client is gone without a word | as one that sends no request, stops in the midst of a body, or does not take its response |
//! | clients are too many | further ones wait until there is room: [`Serve::max_connections`] |
//! | a handler panics | ends its connection, or, by HTTP/2, its request alone; [`Counts::panics`](crate::metrics::Counts::panics) |
//! | a service answers an error | likewise |
//! | the process has no descriptors left | connections wait until there are some again: [`Serve::on_accept_error`] |

mod accept;
mod accept_error;
mod connection;
mod gate;
mod io;
mod listener;
mod pace;
mod request_body;
mod requests;
mod serve;
mod sse;
mod streams;

#[cfg(feature = "inspect")]
pub(crate) use self::listener::Client;
pub use self::{
    accept::AcceptError,
    listener::{Handshake, IncomingStream, Listener, ListenerExt},
    request_body::without_body_timeout,
    serve::{Serve, ServeFuture, serve, serve_all},
    sse::{KeepAlive, keep_alive},
};
