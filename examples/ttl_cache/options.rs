//! Command-line options.

use std::{net::SocketAddr, num::NonZeroUsize, time::Duration};

use clap::Parser;

/// A cache with key expiry that speaks redis's protocol. Each key's expiry is one timer of the
/// runtime.
#[derive(Debug, Parser)]
pub struct Options {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379")]
    pub listen: SocketAddr,
    /// Close a connection after this time without an answered command; 0s means never.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub idle: Duration,
    /// Maximum number of connections.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max_clients: u64,
    /// Maximum bytes of keys and values, plus 320 for each key, and of what exceeds 16 KiB of a
    /// request that is received in part; 0 means no limit.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes)]
    pub max_memory: u64,
    /// Maximum length of a value or any other argument.
    #[arg(long, value_name = "BYTES", default_value = "8m", value_parser = bulk)]
    pub max_bulk: usize,
    /// Number of worker threads [default: one per usable core].
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
}

impl Options {
    /// Returns the maximum of bytes, which may be that of the type.
    pub fn max_bytes(&self) -> u64 {
        match self.max_memory {
            0 => u64::MAX,
            bytes => bytes,
        }
    }
}

/// Parses a duration, such as `100ms` or `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a number and a unit, such as 250ms or 5m"))
}

/// Parses a number of bytes. The suffixes `k`, `m` and `g` mean 2^10, 2^20 and 2^30.
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
        .ok_or_else(|| "expected a whole number, such as 1048576, 512k or 8m".to_owned())
}

/// Parses the maximum length of a bulk string.
fn bulk(text: &str) -> Result<usize, String> {
    // The maximum of redis, which the parser's offsets also rely on.
    match bytes(text)? {
        0 => Err("must be at least 1".to_owned()),
        bytes if bytes > 512 << 20 => Err("must be at most 512m".to_owned()),
        bytes => Ok(bytes as usize),
    }
}
