//! Where a run took place: what its figures mean nothing without.

use std::{fs, thread};

use serde::Serialize;

/// The versions that were built, as cargo wrote them down.
const LOCK: &str = include_str!("../../Cargo.lock");

/// The packages whose versions the table names.
const PEERS: [&str; 6] = ["tokio", "tokio-util", "smol", "compio", "monoio", "glommio"];

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// In UTC.
    pub date: String,
    pub processor: String,
    pub threads: usize,
    pub kernel: String,
    pub peers: Vec<String>,
}

impl Machine {
    pub fn look() -> Self {
        let date = jiff::Timestamp::now().to_string();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        // The number alone: what a builder of kernels adds to it says nothing.
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

/// Returns the load of the last minute, which shows whether other programs wanted the processor.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or(f64::NAN)
}

/// `name version`, if the lock file has it.
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
