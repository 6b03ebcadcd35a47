//! Servers and clients for tokio on simulated hosts.

#![cfg(tourbillon_sim)]

mod grpc;
mod http;
mod redis;
