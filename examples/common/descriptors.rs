//! The limit of descriptors, of which each connection takes one or more.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises it to what the system lets us have, of which it grants 1024 unasked, for the sake of programs that
/// use `select`. Answers what it is then.
pub fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, the limit stays as it is, which is looked at next.
    let _ = setrlimit(Resource::Nofile, limit);
    // None is no limit.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
