//! Panics where tokio panics: outside of a runtime, and if the builder has not enabled what is
//! needed.

use std::{io, thread};

use real::runtime::{Handle, TryCurrentError};
use tourbillon::{ArmError, facade::Drivers};

/// The text with which tokio panics outside of a runtime.
pub(crate) const NO_RUNTIME: &str =
    "there is no reactor running, must be called from the context of a Tokio 1.x runtime";

/// Returns what is enabled.
#[track_caller]
fn here() -> Drivers {
    match Drivers::here() {
        Some(drivers) => drivers,
        None => panic!("{NO_RUNTIME}"),
    }
}

/// Checks that there is a runtime, for what blocks one of its threads.
#[track_caller]
pub(crate) fn need_runtime() {
    _ = here();
}

/// Checks that there are sockets.
#[track_caller]
pub(crate) fn need_io() {
    assert!(
        here().io,
        "A Tokio 1.x context was found, but IO is disabled. Call `enable_io` on the runtime \
         builder to enable IO."
    );
}

/// Returns a socket that was bound, after [`need_io`]. As in tokio, the system's error comes first,
/// and a name that was bound stays bound.
#[track_caller]
pub(crate) fn bound<T>(socket: io::Result<T>) -> io::Result<T> {
    // Outside of a runtime it was bound, and then nobody took it.
    let is_of_system = |error: &io::Error| error.get_ref().is_none_or(|it| !it.is::<ArmError>());
    if !socket.as_ref().is_err_and(is_of_system) {
        need_io();
    }
    socket
}

/// Checks that there are timers.
#[track_caller]
pub(crate) fn need_time() {
    assert!(
        here().time,
        "A Tokio 1.x context was found, but timers are disabled. Call `enable_time` on the runtime \
         builder to enable timers."
    );
}

/// Returns why the calling thread is in no runtime. Once the thread has dropped its variables, the
/// error says so: it is that of the real tokio.
pub(crate) fn missing() -> TryCurrentError {
    Handle::try_current().err().unwrap_or_else(|| {
        // This thread is in a runtime of the real tokio. A new thread is in none.
        let new = thread::spawn(|| Handle::try_current().expect_err("the thread is new"));
        new.join().expect("it asks and ends")
    })
}

/// Creates the real tokio's variable of this thread, if it is not there. The thread drops it before
/// all variables that it had created earlier, so their destructors get the error that says so.
pub(crate) fn note_thread() {
    _ = Handle::try_current();
}
