//! The first panic of an exchange, on any thread.

use std::{
    panic,
    sync::{Mutex, Once, PoisonError},
    thread,
};

static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Forgets the panics until now. From the first call on, panics are recorded and not printed. Those
/// of the main thread are printed, because it runs no exchange.
pub fn clear() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name() == Some("main") {
                return print(info);
            }
            let text = info.payload_as_str().unwrap_or("not a text");
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| format!("{text} ({place})"));
        }));
    });
    *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Returns the message and the place of the first panic since [`clear`].
pub fn first() -> Option<String> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
