//! The limit of open descriptors. Each connection needs one or more.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit and returns it. Many systems set the soft limit to 1024.
pub fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the limit stays as it is; the next line reads it.
    let _ = setrlimit(Resource::Nofile, limit);
    // `None` means that there is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
