//! Servers and clients for tokio, and SQLite, on simulated hosts.

#![cfg(tourbillon_sim)]

mod grpc;
mod http;
mod redis;
mod signals;
mod sqlite;
