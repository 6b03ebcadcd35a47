//! Command-line arguments.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use clap::Parser;
use tourbillon_examples::values::{count, positive};

use crate::retry::Policy;

/// A TCP proxy that retries its upstreams with backoff until one accepts the connection.
#[derive(Parser)]
pub struct Args {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7778")]
    pub listen: String,
    /// Upstream addresses; clients start with each in turn. A name stands for all of its addresses,
    /// as resolved at the start.
    #[arg(long, value_name = "HOST:PORT", required = true, num_args = 1.., value_parser = addrs)]
    pub upstream: Vec<Addrs>,
    /// Time limit of one connection attempt.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive)]
    pub connect_timeout: Duration,
    /// Time limit of all attempts for one client; then the client is closed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    deadline: Duration,
    /// Delay after all upstreams have failed; doubles each time.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = positive)]
    backoff: Duration,
    /// Maximum delay.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive)]
    max_backoff: Duration,
    /// Random share of each delay, from 0 to 1.
    #[arg(long, default_value = "0.5", value_parser = part)]
    jitter: f64,
    /// Close a connection after this time without a byte in either direction.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive)]
    pub idle: Duration,
    /// Maximum number of clients; more clients wait [default: as many as the descriptor limit
    /// allows, at two each].
    #[arg(long, value_name = "COUNT", value_parser = count)]
    pub max_connections: Option<usize>,
    /// After Ctrl-C or SIGTERM, wait up to this long for connections to end.
    #[arg(
        long, value_name = "DURATION", default_value = "10s",
        value_parser = humantime::parse_duration,
    )]
    pub drain: Duration,
    /// Print each failed attempt.
    #[arg(long, short)]
    pub verbose: bool,
}

/// The addresses of one upstream.
pub type Addrs = std::sync::Arc<[SocketAddr]>;

impl Args {
    /// Returns the retry policy for this number of addresses.
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
        return Err("the name has no address".into());
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
