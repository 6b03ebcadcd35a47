//! Calls of user code. A panic of one call does not keep the others from being made.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Drops the payload of a panic. If its destructor panics as well, leaks that second payload.
pub(crate) fn forget(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// Calls `f` with each of `items`, even if some of the calls panic.
///
/// # Panics
///
/// Panics with the payload of the first call that panicked, after all calls have been made.
pub(crate) fn each<T>(items: Vec<T>, mut f: impl FnMut(T)) {
    let mut first = None;
    for item in items {
        match catch_unwind(AssertUnwindSafe(|| f(item))) {
            Err(panic) if first.is_none() => first = Some(panic),
            Err(panic) => forget(panic),
            Ok(()) => {}
        }
    }
    if let Some(panic) = first {
        resume_unwind(panic);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// The payload of a panic. Its destructor panics as well.
    struct Twice;

    impl Drop for Twice {
        fn drop(&mut self) {
            panic!("the payload panics when it is dropped");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks a payload")]
    fn a_payload_that_panics_when_it_is_dropped_is_forgotten() {
        forget(Box::new(Twice));
        forget(Box::new(1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks a payload")]
    fn each_call_is_made_and_the_first_panic_continues() {
        let mut called = Vec::new();
        let calls = AssertUnwindSafe(|| {
            each(vec![1, 2, 3, 4], |item| {
                called.push(item);
                match item {
                    1 | 3 => panic_any(item),
                    4 => panic_any(Twice),
                    _ => {}
                }
            });
        });
        let panic = catch_unwind(calls).expect_err("three calls panic");
        assert_eq!(panic.downcast_ref(), Some(&1));
        assert_eq!(called, [1, 2, 3, 4]);
    }
}
