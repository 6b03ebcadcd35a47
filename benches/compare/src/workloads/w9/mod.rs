//! W9: HTTP/1 by the same hyper on each runtime, driven by `wrk`.
//!
//! The server is a process of its own, with two workers; `wrk`, with one thread, shares the cores with it.
//!
//! - *hello*: 13 bytes at once; 64 connections.
//! - *header timeout*: the same, with hyper's timeout of 30 s for the head of each request.
//! - *delayed*: the same 13 bytes after a sleep of 100 ms; 2,000 connections.
//!
//! *CPU* is that of the server, by the kernel's books of its threads, for one request; how the cores are shared
//! is up to the kernel's scheduler, so the requests a second depend on `wrk` as well. *p99* is what `wrk` saw.
//!
//! The servers are the same generic function; what differs is the runtime's listener, its stream as hyper wants it,
//! and its timer for hyper: ours, hyper-util's for tokio, smol-hyper's for smol.
//!
//! It needs `wrk`.

mod server;
mod wrk;

use crate::measure::parts;
use crate::system::System;
use crate::workload::{Figure, Workload};

pub const WORKLOAD: Workload = Workload {
    name: "w9",
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
    ],
    run,
};

/// The response, and the number of connections.
#[derive(Debug)]
pub struct Load {
    pub name: &'static str,
    pub connections: usize,
    pub has_header_timeout: bool,
    pub is_delayed: bool,
}

const HELLO: Load = Load {
    name: "hello",
    connections: 64,
    has_header_timeout: false,
    is_delayed: false,
};

const HEADER_TIMEOUT: Load = Load {
    name: "header timeout",
    connections: 64,
    has_header_timeout: true,
    is_delayed: false,
};

const DELAYED: Load = Load {
    name: "delayed",
    connections: 2_000,
    has_header_timeout: false,
    is_delayed: true,
};

fn run(system: System, quick: bool) -> Vec<Figure> {
    if let Some(asked) = parts::asked() {
        let mut loads = [&HELLO, &HEADER_TIMEOUT, &DELAYED].into_iter();
        let load = loads.find(|load| load.name == asked);
        server::serve(system, load.expect("a part of w9"));
    }
    let figure = |name, value| Figure { name, value };
    let hello = wrk::drive(&HELLO, quick);
    let header_timeout = wrk::drive(&HEADER_TIMEOUT, quick);
    let delayed = wrk::drive(&DELAYED, quick);
    vec![
        figure("hello: req/s", hello.requests_a_second),
        figure("hello: CPU µs", hello.cpu_micros),
        figure("header timeout: req/s", header_timeout.requests_a_second),
        figure("header timeout: CPU µs", header_timeout.cpu_micros),
        figure("delayed: CPU µs", delayed.cpu_micros),
        figure("delayed: p99 ms", delayed.p99_millis),
    ]
}
