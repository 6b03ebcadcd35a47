//! W9: HTTP/1 servers with the same hyper on each runtime, driven by `wrk`.
//!
//! The server is a process of its own, with two workers. `wrk` has one thread and shares the
//! cores with the server.
//!
//! - *hello*: a reply of 13 bytes, at once; 64 connections.
//! - *header timeout*: like *hello*, with hyper's timeout of 30 s for the head of each request.
//! - *delayed*: the same 13 bytes after a sleep of 100 ms; 2,000 connections.
//!
//! *CPU* is the server's processor time per request, as the kernel counts it for each thread. The
//! kernel's scheduler divides the cores between the server and `wrk`, so the requests per second
//! depend on `wrk` as well. *p99* is the latency that `wrk` reports.
//!
//! All servers run the same generic function. They differ in the runtime's listener, in the
//! adapter that makes its stream usable by hyper, and in its timer for hyper. The timer is
//! Tourbillon's own, hyper-util's for tokio, and smol-hyper's for smol.
//!
//! The program `wrk` must be installed.

mod server;
mod wrk;

use crate::measure::parts;
use crate::system::System;
use crate::workload::{Figure, Workload};

pub const WORKLOAD: Workload = Workload {
    name: "w9",
    systems: &System::THREADED,
    run,
};

/// The kind of response, and the number of connections.
#[derive(Debug)]
pub struct Load {
    /// Name of the load, and of the part whose process is the server.
    pub name: &'static str,
    /// Number of connections that `wrk` opens.
    pub connections: usize,
    /// Whether hyper limits the time for the head of each request.
    pub has_header_timeout: bool,
    /// Whether the server sleeps before each response.
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
    // The process of a part is the server. `serve` does not return.
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
