//! Tests that need a process of their own.

use super::isolated;

/// Runs `body` in a process of its own. Tests use it that count threads or descriptors, lower limits,
/// raise signals, set the panic hook or the global subscriber, or may abort.
///
/// `body` is a closure that stands in the test itself: its type names the test.
#[track_caller]
pub fn alone<F: FnOnce()>(body: F) {
    isolated(test_name::<F>(), body);
}

/// Returns the name of the test in which a closure of type `F` stands, with its modules.
pub fn test_name<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    let (test, _closure) = path.split_once("::{{closure}}").expect("a closure");
    let (_crate, name) = test.split_once("::").expect("a path begins with the crate");
    name
}
