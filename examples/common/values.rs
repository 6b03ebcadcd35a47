//! Parsers of command-line values.

use std::time::Duration;

/// Parses a duration above zero.
pub fn positive(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than zero".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}, such as 250ms or 1m30s")),
    }
}

/// Parses a count of at least 1.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 or more".into()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}
