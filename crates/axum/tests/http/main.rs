//! HTTP servers on this runtime: axum's routers, TLS and gRPC, beside clients of all kinds.

use tourbillon_support as common;
use tourbillon_web as web;

mod grpc;
mod http2;
mod limits;
mod listeners;
mod pressure;
mod quiet_clients;
mod route_labels;
mod routers;
mod same_origin;
mod slow_clients;
mod slow_responses;
mod tls;
mod tolerance;
mod unread_responses;
mod websockets;
