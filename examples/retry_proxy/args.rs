//! The command line.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use clap::Parser;

use crate::{
    retry::Policy,
    values::{count, positive},
};

/// A TCP proxy that tries its upstreams until one takes the connection.
#[derive(Parser)]
pub struct Args {
    /// Where to listen; port 0 is one that the system chooses.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7778")]
    pub listen: String,
    /// Where to connect to; more than one take turns. A name stands for all of its addresses, as they
    /// are at the start.
    #[arg(long, value_name = "HOST:PORT", required = true, num_args = 1.., value_parser = addrs)]
    pub upstream: Vec<Addrs>,
    /// How long one try to connect may take.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive)]
    pub connect_timeout: Duration,
    /// How long all tries for a client may take; then it is closed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    deadline: Duration,
    /// How long to wait when all upstreams have failed; twice as long each time.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = positive)]
    backoff: Duration,
    /// The longest wait.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive)]
    max_backoff: Duration,
    /// Which part of each wait is left to chance, from 0 to 1.
    #[arg(long, default_value = "0.5", value_parser = part)]
    jitter: f64,
    /// For how long a connection may be without a byte in either direction before it is closed.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive)]
    pub idle: Duration,
    /// How many clients to have at once, the others wait; by default as many as there may be
    /// descriptors, two for each.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    pub max_connections: Option<usize>,
    /// After Ctrl-C or SIGTERM, how long to wait for connections to end.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub drain: Duration,
    /// Print each try that fails.
    #[arg(long, short)]
    pub verbose: bool,
}

/// The addresses of one upstream.
pub type Addrs = std::sync::Arc<[SocketAddr]>;

impl Args {
    /// How to try so many addresses.
    pub fn policy(&self, addrs: usize) -> Policy {
        Policy {
            deadline: self.deadline,
            round: u32::try_from(addrs).unwrap_or(u32::MAX).max(1),
            backoff: self.backoff,
            max_backoff: self.max_backoff,
            jitter: self.jitter,
        }
    }
}

fn addrs(text: &str) -> Result<Addrs, String> {
    let addrs: Vec<_> = text
        .to_socket_addrs()
        .map_err(|error| format!("{error}; such as 127.0.0.1:8080 or localhost:8080"))?
        .collect();
    if addrs.is_empty() {
        return Err("it has no address".into());
    }
    Ok(addrs.into())
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        Ok(_) => Err("must be from 0 to 1".into()),
        Err(error) => Err(format!("{error}")),
    }
}
