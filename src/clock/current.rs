//! The clock of the runtime that the calling thread is in.
//!
//! Clocks lie below the runtime, so they cannot ask it. The runtime registers a function that finds
//! the clock of the calling thread's runtime, once per process.

use std::sync::OnceLock;

use crate::clock::runtime_clock::Clock;

/// Calls its argument with the clock of the calling thread's runtime, if the thread is in one.
pub(crate) type Finder = fn(&mut dyn FnMut(&Clock));

static FINDER: OnceLock<Finder> = OnceLock::new();

/// Registers the function that finds the clock of the calling thread. Later calls change nothing.
pub(crate) fn find_by(finder: Finder) {
    _ = FINDER.set(finder);
}

/// Runs `f` with the clock of the calling thread's runtime. Returns `None` outside of runtimes.
pub(crate) fn with_clock<R>(f: impl Fn(&Clock) -> R) -> Option<R> {
    let mut answer = None;
    // Before the first runtime of the process is built, no thread is in one.
    if let Some(find) = FINDER.get() {
        find(&mut |clock| answer = Some(f(clock)));
    }
    answer
}
