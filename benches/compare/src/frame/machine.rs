//! The machine and the software versions of a measurement.
//!
//! The figures of a measurement have no meaning without them.

use std::{fs, thread};

use serde::Serialize;

/// Lock file of this package. It has the versions of the peers that are built in.
const LOCK: &str = include_str!("../../Cargo.lock");

/// Packages whose versions the table shows.
const PEERS: [&str; 6] = ["tokio", "tokio-util", "smol", "compio", "monoio", "glommio"];

/// Machine, date and versions of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Date in UTC, in the form `YYYY-MM-DD`.
    pub date: String,
    /// Processor model, or `unknown`.
    pub processor: String,
    /// Number of hardware threads that this process can use, or 1 if it is unknown.
    pub threads: usize,
    /// Version number of the Linux kernel. Empty if it is unknown.
    pub kernel: String,
    /// Name and version of each peer, as in `tokio 1.40.0`.
    pub peers: Vec<String>,
}

impl Machine {
    /// Returns the current date and the description of this machine.
    pub fn look() -> Self {
        let date = jiff::Timestamp::now().to_string();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        // Keep only the version number: the suffix of a distribution does not help readers.
        let kernel = release.split(['-', '\n']).next().unwrap_or_default();
        Self {
            date: date.chars().take_while(|c| *c != 'T').collect(),
            processor: model
                .map_or("unknown", |(_, model)| model.trim())
                .to_owned(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.to_owned(),
            peers: PEERS
                .iter()
                .filter_map(|name| version(LOCK, name))
                .collect(),
        }
    }
}

/// Returns the load average of the last minute, or NaN if it is unknown.
///
/// A high load before a measurement shows that other programs compete for the processors.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or(f64::NAN)
}

/// Returns a package's name and version, as in `tokio 1.40.0`.
///
/// Takes the first entry with this name. Returns `None` if the lock file has no such entry.
fn version(lock: &str, name: &str) -> Option<String> {
    let head = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock.split_once(&head)?;
    Some(format!("{name} {}", rest.split('"').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        let lock = "[[package]]\nname = \"smol-str\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"smol\"\nversion = \"2.0.2\"\n";
        assert_eq!(version(lock, "smol").as_deref(), Some("smol 2.0.2"));
        assert_eq!(version(lock, "tokio"), None);
        assert!(version(LOCK, "tokio").is_some());
    }
}
