//! A small server for Redis's protocol. This file builds it on tokio.

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
    pub use tokio::{net, runtime, spawn, task, time};

    pub mod signal {
        pub use tokio::signal::unix::{SignalKind, signal};
    }
}

fn main() -> std::process::ExitCode {
    say::end("redis", program::run())
}
