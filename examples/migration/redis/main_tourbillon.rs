//! A small server for Redis's protocol. This file builds it on Tourbillon.

mod client;
mod cmd;
mod connection;
mod db;
mod frame;
mod program;
#[path = "../../common/say.rs"]
mod say;
mod server;

/// The runtime of the program.
mod rt {
    pub use tourbillon::{net, runtime, signal, spawn, task, time};
}

fn main() -> std::process::ExitCode {
    say::end("redis", program::run())
}
