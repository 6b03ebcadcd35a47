#![doc = include_str!("../README.md")]
//!
//! # What works
//!
//! Routers, extractors, responses and axum's own middleware need no runtime. gRPC by `tonic` is a
//! router, too. Most layers of tower work as well. The following need tokio's runtime and **panic**
//! here:
//!
//! | panics here | replacement |
//! |---|---|
//! | `axum::serve` | [`serve`] |
//! | `Sse::keep_alive` | [`keep_alive`] |
//! | the timeout layers of `tower` and `tower-http` | a function as below |
//! | `rate_limit` of `tower` | an [`interval`](tourbillon::time::interval) behind a mutex |
//! | `buffer` of `tower` | `Buffer::pair`, whose worker runs in a task of [`spawn`](tourbillon::spawn) |
//! | `on_upgrade` of `extract::ws` | `hyper::upgrade::on`, in a task of [`spawn`](tourbillon::spawn) |
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
//! # Faults
//!
//! - **A client sends no request, or sends it slowly**: its connection is closed:
//!   [`Serve::header_read_timeout`], [`Serve::keep_alive_timeout`].
//! - **A request head is too large**: 431, and the connection is closed: the limits are 100 headers
//!   and 64 KiB ([`Serve::max_buf_size`]).
//! - **A client does not speak HTTP**: 400 or nothing, and the connection is closed.
//! - **A client closes its connection**: its handlers are dropped at their next await point.
//! - **A client closes its writing half**: likewise, unless [`Serve::half_close`] allows it.
//! - **A client does not take its response, or takes it very slowly**: its connection is closed;
//!   with HTTP/2 its stream is reset: [`Serve::write_timeout`].
//! - **A client sends a request body very slowly, or stops sending it**: the body ends with an
//!   error: [`Serve::request_body_timeout`].
//! - **A client disappears without closing its connection**: like one that sends no request, stops
//!   sending a body, or does not take its response.
//! - **Too many clients connect**: further ones wait until there is room:
//!   [`Serve::max_connections`].
//! - **A handler panics**: its connection is closed; with HTTP/2 only its request fails;
//!   [`Counts::panics`](tourbillon::metrics::Counts::panics) counts it.
//! - **A service returns an error**: likewise, without the count.
//! - **The process has no descriptors left**: connections wait until there are some:
//!   [`Serve::on_accept_error`].
//! - **A page of another site sends requests**, perhaps by a name that it lets resolve to this
//!   server (DNS rebinding): they are answered, unless the layer [`SameOrigin`] refuses them.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

mod accept;
mod accept_error;
mod ack_counter;
mod connection;
#[doc(hidden)]
pub mod guard;
mod io;
mod listener;
mod options;
mod pace;
mod request_body;
mod requests;
mod route_labels;
mod same_origin;
mod serve;
mod server;
mod sse;
mod streams;

pub use self::{
    accept_error::AcceptError,
    ack_counter::AckCounter,
    guard::hosts::InvalidHost,
    listener::{Handshake, IncomingStream, Listener, ListenerExt},
    request_body::without_body_timeout,
    route_labels::{Labelled, RouteLabels, RouteLabelsService},
    same_origin::{SameOrigin, SameOriginService},
    serve::{Serve, ServeFuture, serve, serve_all},
    sse::{KeepAlive, keep_alive},
};
