//! Arguments of the program.

use std::{net::SocketAddr, num::NonZeroUsize, time::Duration};

use clap::Parser;

/// A cache with key expiry that speaks redis's protocol. Each key's expiry is one timer of the runtime.
#[derive(Debug, Parser)]
pub struct Options {
    /// Where to listen; port 0 is one that the system chooses.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379")]
    pub listen: SocketAddr,
    /// For how long a connection may be without an answered command before it is closed; 0s: for ever.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub idle: Duration,
    /// How many connections there may be.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_clients: u64,
    /// How many bytes of keys and values there may be, and 320 more for each key; 0 is no bound.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes)]
    pub max_memory: u64,
    /// How long a value may be, and anything else that a client sends.
    #[arg(long, value_name = "BYTES", default_value = "8m", value_parser = bulk)]
    pub max_bulk: usize,
    /// How many workers there are [default: one for each usable core].
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
}

/// A duration, such as `100ms` or `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a number and a unit are wanted, such as 250ms or 5m"))
}

/// A number of bytes, in which `k`, `m` and `g` stand for 2^10, 2^20 and 2^30.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "a whole number is wanted, such as 1048576, 512k or 8m".to_owned())
}

/// The length of a bulk string.
fn bulk(text: &str) -> Result<usize, String> {
    // More than redis allows would be past what the parser counts to.
    match bytes(text)? {
        0 => Err("there must be at least 1".to_owned()),
        bytes if bytes > 512 << 20 => Err("there may be at most 512m".to_owned()),
        bytes => Ok(bytes as usize),
    }
}
