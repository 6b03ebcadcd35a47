//! Calls of foreign code: callbacks, wakers, and destructors of users' values. A panic of one call
//! does not keep the others from being made.
//!
//! A plain loop over a list of them stops at the first panic, and the drop of a `Vec` of them
//! aborts the process at the second. So the runtime and its crates call and drop such lists by the
//! functions of this module alone.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread::panicking,
};

/// The payload of a panic. It is foreign, too: its destructor may panic.
pub type Panic = Box<dyn Any + Send>;

/// Drops the payload of a panic. If its destructor panics as well, leaks that second payload.
pub fn forget(panic: Panic) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}

/// Goes on with a panic. If the calling thread unwinds already, forgets it instead: a second panic
/// would abort the process.
pub fn resume(panic: Panic) {
    if panicking() {
        forget(panic);
    } else {
        resume_unwind(panic);
    }
}

/// Calls `f` and catches its panic. Returns `false` if it panicked.
pub fn contained(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(panic) => {
            forget(panic);
            false
        }
    }
}

/// Calls `f` with each of `items`. If calls panic, makes the others all the same, and then panics
/// with the first payload.
///
/// If the calling thread unwinds already, that panic goes on, and those of the calls are forgotten.
pub fn each<T>(items: impl IntoIterator<Item = T>, f: impl FnMut(T)) {
    let mut first = None;
    each_or(items, f, |panic| match &first {
        None => first = Some(panic),
        Some(_) => forget(panic),
    });
    if let Some(panic) = first {
        resume(panic);
    }
}

/// Calls `f` with each of `items`, and `panicked` with the payload of each call that panics.
/// `panicked` must not panic.
pub fn each_or<T>(
    items: impl IntoIterator<Item = T>,
    mut f: impl FnMut(T),
    mut panicked: impl FnMut(Panic),
) {
    let mut items = items.into_iter();
    // One `catch_unwind` for all of them. After a panic, another one for those that are left.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| items.by_ref().for_each(&mut f))) {
        panicked(panic);
    }
}

/// A list whose items are dropped by [`each`]: all of them, even if some destructors panic.
#[derive(Debug)]
pub struct Drops<T>(pub Vec<T>);

impl<T> Drop for Drops<T> {
    fn drop(&mut self) {
        each(mem::take(&mut self.0), drop);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{panic::panic_any, sync::atomic::AtomicUsize, sync::atomic::Ordering::Relaxed};

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
        assert!(!contained(|| panic_any(Twice)));
        assert!(contained(|| ()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it leaks a payload")]
    fn each_call_is_made_and_the_first_panic_continues() {
        let mut called = Vec::new();
        let calls = AssertUnwindSafe(|| {
            each(vec![1, 2, 3, 4, 5], |item| {
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
        assert_eq!(called, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn each_panic_is_passed_on() {
        let mut panics = Vec::new();
        let call = |item: i32| match item {
            2 => {}
            item => panic_any(item),
        };
        each_or([1, 2, 3], call, |panic| {
            panics.push(*panic.downcast::<i32>().unwrap());
        });
        assert_eq!(panics, [1, 3]);
    }

    /// Counts its drop, and panics.
    struct Bomb<'a>(&'a AtomicUsize);

    impl Drop for Bomb<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
            panic_any("the destructor panics");
        }
    }

    #[test]
    fn a_list_is_dropped_although_several_destructors_panic() {
        let drops = AtomicUsize::new(0);
        let list = || Drops(vec![Bomb(&drops), Bomb(&drops), Bomb(&drops)]);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(list())));
        assert_eq!(
            dropped.unwrap_err().downcast_ref(),
            Some(&"the destructor panics")
        );
        assert_eq!(drops.load(Relaxed), 3);
        // In a thread that unwinds, its own panic goes on.
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _list = list();
            panic_any(7);
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(drops.load(Relaxed), 6);
    }
}
