//! Programs that a test needs and that may not be installed.

use std::env;

/// Returns whether the program `client` is installed. If it is not, the test should be skipped.
/// With `TOURBILLON_REQUIRE_CLIENTS=1`, a missing program is a panic.
pub fn have(client: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join(client).is_file());
    if !found {
        skip(client);
    }
    found
}

/// Prints that a test is skipped because `client` is not installed. With
/// `TOURBILLON_REQUIRE_CLIENTS=1`, panics instead.
pub fn skip(client: &str) {
    let required = env::var_os("TOURBILLON_REQUIRE_CLIENTS").is_some_and(|v| v == "1");
    assert!(
        !required,
        "{client} is not installed, and clients are required"
    );
    eprintln!("skipped: {client} is not installed");
}
