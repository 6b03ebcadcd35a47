#![doc = include_str!("../README.md")]

#[cfg(loom)]
mod model;
#[cfg(loom)]
mod trace;

#[cfg(loom)]
pub use self::model::model;

/// Calls [`model()`](fn@model) with the name of the calling function.
///
/// The first argument is the bound of preemptions, `Some(n)` or `None`, and the second the closure.
///
/// ```
/// # #[cfg(loom)]
/// # {
/// use loom::{sync::{Arc, atomic::{AtomicUsize, Ordering}}, thread};
///
/// tourbillon_loom::model!(None, || {
///     let count = Arc::new(AtomicUsize::new(0));
///     let other = thread::spawn({
///         let count = count.clone();
///         move || _ = count.fetch_add(1, Ordering::Relaxed)
///     });
///     count.fetch_add(1, Ordering::Relaxed);
///     other.join().unwrap();
///     assert_eq!(count.load(Ordering::Relaxed), 2);
/// });
/// # }
/// ```
#[cfg(loom)]
#[macro_export]
macro_rules! model {
    ($preemptions:expr, $body:expr) => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here).trim_end_matches("::here");
        $crate::model(name, $preemptions, $body)
    }};
}
